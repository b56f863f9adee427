"""Heat maps as small images: a byte a cell, which the browser colours and the page reads back."""

from base64 import b64encode
from dataclasses import replace
from functools import cache
from io import BytesIO

from PIL import Image

from posenc.show.report.drawing.marks import Heat

LEVELS = 254  # steps between both ends of a palette; one more byte says that there is no value
EMPTY = 255
BELOW, ABOVE = (31, 131, 196), (213, 94, 0)  # of signed values; transparent at 0
MORE = BELOW  # of values that have no sign; transparent at their least, so they fit both themes


def image(heat: Heat, down: bool = False) -> str:
    """An address that holds the image; its first row is the last of `z`, or the first if `down`."""
    rows, span, colours = heat.z if down else heat.z[::-1], heat.span, _palette(heat.signed)
    cells = bytes(level(value, *span) for row in rows for value in row)
    picture, file = Image.frombytes("P", (len(rows[0]), len(rows)), cells), BytesIO()
    picture.putpalette([part for colour in colours for part in colour[:3]])
    opacity = bytes(colour[3] for colour in colours)
    picture.save(file, "PNG", transparency=opacity, compress_level=9)
    return "data:image/png;base64," + b64encode(file.getvalue()).decode()


def level(value: float | None, low: float, high: float) -> int:
    """The step of the palette for a value; those beyond its ends have the colour of the end."""
    if value is None:
        return EMPTY
    return round(LEVELS * min(max((value - low) / ((high - low) or 1), 0), 1))


def ink(value: float, heat: Heat) -> str:
    """The colour of a number that is written on the colour of its value."""
    red, green, blue, seen = _palette(heat.signed)[level(value, *heat.span)]
    if seen < 200:  # the paper still shows more than the colour
        return "currentColor"
    return "#000" if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else "#fff"


def bar(heat: Heat) -> str:
    """An address that holds the palette from its low end to its high end."""
    low, high = heat.span
    values = [low + (high - low) * n / LEVELS for n in range(LEVELS + 1)]
    return image(replace(heat, z=[values], low=low, high=high))


@cache
def _palette(signed: bool) -> list[tuple[int, int, int, int]]:
    """Red, green, blue and opacity of each byte."""
    if signed:
        middle = LEVELS // 2
        colours = [
            (*(BELOW if n < middle else ABOVE), round(255 * abs(n - middle) / middle))
            for n in range(LEVELS + 1)
        ]
    else:
        colours = [(*MORE, round(255 * n / LEVELS)) for n in range(LEVELS + 1)]
    return [*colours, (0, 0, 0, 0)]
