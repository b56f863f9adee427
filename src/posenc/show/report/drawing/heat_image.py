"""Encode heat maps as small PNG images with one byte per cell."""

from base64 import b64encode
from dataclasses import replace
from functools import cache
from io import BytesIO

from PIL import Image

from posenc.show.report.drawing.marks import Heat

LEVELS = 254  # steps between both ends of a palette; one more byte marks a missing value
EMPTY = 255
BELOW, ABOVE = (31, 131, 196), (213, 94, 0)  # colours of signed values, transparent at 0
MORE = BELOW  # colour of unsigned values, transparent at the lowest to fit light and dark themes


def image(heat: Heat, down: bool = False) -> str:
    """Encode a heat map as a PNG image, and return its data URL.

    The last row of `z` is on top or, if `down`, the first row.
    """
    rows, span, colours = heat.z if down else heat.z[::-1], heat.span, _palette(heat.signed)
    cells = bytes(level(value, *span) for row in rows for value in row)
    picture, file = Image.frombytes("P", (len(rows[0]), len(rows)), cells), BytesIO()
    picture.putpalette([part for colour in colours for part in colour[:3]])
    opacity = bytes(colour[3] for colour in colours)
    picture.save(file, "PNG", transparency=opacity, compress_level=9)
    return "data:image/png;base64," + b64encode(file.getvalue()).decode()


def level(value: float | None, low: float, high: float) -> int:
    """Convert a heat map's value to a palette index; values beyond the scale are clipped."""
    if value is None:
        return EMPTY
    return round(LEVELS * min(max((value - low) / ((high - low) or 1), 0), 1))


def ink(value: float, heat: Heat) -> str:
    """Return a text colour that can be read on the colour of a heat map's cell."""
    red, green, blue, seen = _palette(heat.signed)[level(value, *heat.span)]
    if seen < 200:  # mostly transparent, so that the background determines the contrast
        return "currentColor"
    return "#000" if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else "#fff"


def bar(heat: Heat) -> str:
    """Return an image of the colour scale, from low to high, as a data URL."""
    low, high = heat.span
    values = [low + (high - low) * n / LEVELS for n in range(LEVELS + 1)]
    return image(replace(heat, z=[values], low=low, high=high))


@cache
def _palette(signed: bool) -> list[tuple[int, int, int, int]]:
    """Return the 256 palette colours as (red, green, blue, opacity)."""
    if signed:
        middle = LEVELS // 2
        colours = [
            (*(BELOW if n < middle else ABOVE), round(255 * abs(n - middle) / middle))
            for n in range(LEVELS + 1)
        ]
    else:
        colours = [(*MORE, round(255 * n / LEVELS)) for n in range(LEVELS + 1)]
    return [*colours, (0, 0, 0, 0)]
