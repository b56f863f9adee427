"""Heat maps as small images: a byte a cell, which the browser colours and the page reads back."""

from base64 import b64encode
from dataclasses import replace
from functools import cache
from struct import pack
from zlib import compress, crc32

from matplotlib import colormaps

from posenc.show.report.drawing.marks import Heat

LEVELS = 254  # steps between both ends of a palette; one more byte says that there is no value
EMPTY = 255
BELOW, ABOVE = (31, 131, 196), (213, 94, 0)  # of signed values; transparent at 0


def image(heat: Heat, down: bool = False) -> str:
    """An address that holds the image; the first row of `z` is the lowest, if `down` the highest.

    A row of a PNG begins with the byte of its filter, 0 for none.
    """
    lines, span = heat.z if down else heat.z[::-1], heat.span
    rows = [bytes([0, *(level(value, *span) for value in row)]) for row in lines]
    colours = _palette(heat.signed)
    plain = b"".join(bytes(colour[:3]) for colour in colours)
    seen = bytes(colour[3] for colour in colours)
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        pack(">I", len(data)) + kind + data + pack(">I", crc32(kind + data))
        for kind, data in (
            (b"IHDR", pack(">IIBBBBB", len(heat.z[0]), len(heat.z), 8, 3, 0, 0, 0)),
            (b"PLTE", plain),
            (b"tRNS", seen),
            (b"IDAT", compress(b"".join(rows), 9)),
            (b"IEND", b""),
        )
    )
    return "data:image/png;base64," + b64encode(png).decode()


def level(value: float | None, low: float, high: float) -> int:
    """The step of the palette for a value; those beyond its ends have the colour of the end."""
    if value is None:
        return EMPTY
    return round(LEVELS * min(max((value - low) / ((high - low) or 1), 0), 1))


def ink(value: float, heat: Heat) -> str:
    """The colour of a number that is written on the colour of its value."""
    red, green, blue, seen = _palette(heat.signed)[level(value, *heat.span)]
    if seen < 128:
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
        steps = [n / LEVELS for n in range(LEVELS + 1)]
        colours = [
            (int(red), int(green), int(blue), int(seen))
            for red, green, blue, seen in colormaps["viridis"](steps, bytes=True)
        ]
    return [*colours, (0, 0, 0, 0)]
