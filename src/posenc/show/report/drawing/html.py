"""Draw figures for the screen as HTML and SVG that fit any width without a script.

A panel is an SVG without a fixed width. Text and markers, which must not be stretched, are placed
in per cent (`x="25%"`). Curves and images are in an inner SVG of 1000 × 1000 units that is
stretched to the panel, with lines of constant thickness. The style sheet puts as many panels side
by side as fit, and colours follow the theme of the page.

    div.legend
    div.panels ─▶ div.panel ─▶ div.name  svg.plot  div.under
                               svg.plot ─▶ svg.stretched (grid, lines, images), g (text, markers)

A script adds the values under the pointer, which it computes from the coordinates and the ends of
the axes.
"""

import json
from collections.abc import Iterator
from functools import singledispatch
from html import escape
from math import ceil, inf

from posenc.show.report.drawing import heat_image
from posenc.show.report.drawing.axis import Axis, axis
from posenc.show.report.drawing.figure import GREY, Dash, Figure, Mark, Panel, Values, short
from posenc.show.report.drawing.marks import Area, Arrows, Band, Heat, Line, Points, Rule, Stems
from posenc.show.report.drawing.panel_layout import LINE, legend_names, one_palette
from posenc.support.numbers import number
from posenc.support.text import printable

LETTER = 6.2  # width of a letter in pixels, at font size 12
LONGEST = 28  # greatest number of letters of a name beside an axis
COLUMN = 320  # pixels of the narrowest panel, for the names along x
NARROW = 190  # pixels of an x axis on a telephone, beside names of usual length
DASHES: dict[Dash, str] = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3"}
# For each side of a mark: text anchor of the label, and its shifts right and down
SIDES = {
    "above": ("middle", 0, -7),
    "right above": ("start", 5, -5),
    "left below": ("end", -5, 13),
    "right": ("start", 7, 4),
    "middle": ("middle", 0, 4),
}


def to_html(figure: Figure) -> str:
    """Draw a figure as HTML. All text is escaped."""
    return _legend(figure) + _arranged(figure, [_panel(panel, figure) for panel in figure.panels])


def safe(text: str) -> str:
    """Escape HTML markup, and spell out invisible characters."""
    return escape(printable(text, 200))


def _arranged(figure: Figure, panels: list[str]) -> str:
    """Arrange panels in as many columns as fit on the screen, at most `figure.columns`."""
    columns = min(figure.columns, len(panels))
    least = 150 if len(panels) > 6 and columns > 2 else 200 if columns > 3 else 280
    least = 100 if columns > 6 else least
    # A square beside a plot must be at least as wide as the plot
    if any(panel.square and panel.y_names for panel in figure.panels):
        least = max(least, 260)
    style = f"--columns: {columns}; --least: {least}px" + "; --name: 11.5px" * (columns > 6)
    return f'<div class="panels" style="{style}">{"".join(panels)}</div>'


def _panel(panel: Panel, figure: Figure) -> str:
    x = axis(panel, "x", _x_ticks(panel))
    y = axis(panel, "y", _y_ticks(panel, figure))
    beside = max((len(line) for _, text in y.ticks for line in _lines(text)), default=0)
    beside = beside * LETTER + 9
    spare = 4 if panel.bare and not panel.y_names and not panel.x_names else 14
    left = min(beside, spare) if spare < 14 else beside + (18 if panel.y_title else 0)
    ends = [mark.name for mark in panel.marks if isinstance(mark, Line) and mark.direct]
    right = spare + LETTER * max(map(len, ends), default=0)
    under = 20 if x.ticks else 4
    if panel.x_names:
        under = 8 + LETTER * max(len(_cut(text)) for _, text in x.ticks)
    style = f"--left: {left:.0f}px; --right: {right:.0f}px; --under: {under:.0f}px; "
    style += f"--shape: {_shape(panel, x, y):.4g}" if panel.square else f"--high: {_high(figure)}px"
    kind = "panel square" if panel.square else "panel"
    ends = f'data-x="{_ends(x)}" data-y="{_ends(y)}"'
    titles = f'data-x-title="{safe(panel.x_title)}" data-y-title="{safe(panel.y_title)}"'
    for name, names in (("x", panel.x_names), ("y", panel.y_names)):
        if names:
            full_names = [printable(" ".join(text.split("\n")), 200) for text in names]
            written = escape(json.dumps(full_names))
            titles += f' data-{name}-names="{written}"'
    marks = [drawn for mark in panel.marks for drawn in draw_mark(mark, x, y)]
    stretched = "".join(markup for inside, markup in marks if inside)
    others = "".join(markup for inside, markup in marks if not inside)
    grid = "" if panel.bare or _has_heat(panel) else _grid(x, y, panel)
    bars = [] if one_palette(figure) else [m for m in panel.marks if isinstance(m, Heat) and m.bar]
    return (
        f'<div class="{kind}" style="{style}">'
        + (f'<div class="name">{safe(panel.title)}</div>' if panel.title else "")
        + "".join(_bar(mark) for mark in bars)
        + f'<svg class="plot" {ends} {titles}>'
        + f"{grid}{_ticks(panel, x, y)}{_y_title(panel.y_title, beside)}"
        + _stretched(stretched, " marks")
        + f"<g>{others}</g></svg>"
        + (f'<div class="under">{safe(panel.x_title)}</div>' if panel.x_title else "")
        + "</div>"
    )


def _stretched(inner: str, kind: str = "") -> str:
    return (
        f'<svg class="stretched{kind}" viewBox="0 0 1000 1000" preserveAspectRatio="none"'
        f' width="100%" height="100%">{inner}</svg>'
    )


@singledispatch
def draw_mark(mark: Mark, x: Axis, y: Axis) -> Iterator[tuple[bool, str]]:
    """Yield a mark's SVG elements, each with a flag: True if it is stretched with the panel."""
    raise NotImplementedError(
        f"HTML figures must have a function that draws {type(mark).__name__}, got none. Register"
        " one with `draw_mark`."
    )


@draw_mark.register
def _(mark: Line, x: Axis, y: Axis) -> Iterator[tuple[bool, str]]:
    look = f'stroke="{mark.colour}" stroke-width="{mark.width:g}"{_dash(mark.dash)}'
    drawn = _path(mark.x, mark.y, x, y)
    yield True, f'<path class="line" {look}{_data_name(mark)} d="{drawn}"/>'
    if mark.marker:
        step = 1 if len(mark.x) <= 40 else ceil(len(mark.x) / 12)
        shown = mark.x[::step], mark.y[::step]
        yield False, _markers(*shown, x, y, mark.marker, mark.colour, 6, "")
    if mark.direct:
        points = zip(short(mark.x), short(mark.y), strict=True)
        *_, (last, height) = [point for point in points if None not in point]
        assert last is not None
        assert height is not None
        yield False, _text(mark.name, x.share(last), y.share(height), "start", 6, 4)


@draw_mark.register
def _(mark: Stems, x: Axis, y: Axis) -> Iterator[tuple[bool, str]]:
    bottom = y.share(0)
    drawn = [
        f"M{_unit(x.share(at))} {_unit(1 - bottom)}V{_unit(1 - y.share(value))}"
        for at, value in zip(mark.x, short(mark.y), strict=True)
        if value is not None
    ]
    yield True, f'<path class="stem" stroke="{mark.colour}" d="{"".join(drawn)}"/>'
    looks = mark.marker, mark.colour, 8
    yield False, _markers(mark.x, mark.y, x, y, *looks, _data_name(mark))


@draw_mark.register
def _(mark: Band, x: Axis, y: Axis) -> Iterator[tuple[bool, str]]:
    look = f'fill="{mark.colour}"{_data_name(mark)}'
    yield True, f'<path class="band" {look} d="{_band(mark, x, y)}"/>'


@draw_mark.register
def _(mark: Area, x: Axis, y: Axis) -> Iterator[tuple[bool, str]]:
    kind = "band" if mark.faint else "area"
    drawn = _path(mark.x, mark.y, x, y, "Z")
    yield True, f'<path class="{kind}" fill="{mark.colour}" d="{drawn}"/>'


@draw_mark.register
def _(mark: Points, x: Axis, y: Axis) -> Iterator[tuple[bool, str]]:
    if mark.marker:
        looks = mark.marker, mark.colour, mark.size
        yield False, _markers(mark.x, mark.y, x, y, *looks, _data_name(mark))
    for at, height, label in zip(short(mark.x), short(mark.y), mark.labels, strict=False):
        if at is not None and height is not None:
            place = x.share(at), y.share(height)
            # A label beside a marker has the colour of the page's text
            own = mark.colour and not mark.marker
            colour = f' fill="{mark.colour}"' if own else ""
            yield False, _text(label, *place, *SIDES[mark.side], colour)


@draw_mark.register
def _(mark: Arrows, x: Axis, y: Axis) -> Iterator[tuple[bool, str]]:
    for n, ends in enumerate(zip(mark.x, mark.y, mark.to_x, mark.to_y, strict=True)):
        x1, y1, x2, y2 = ends
        begin, end = (x.share(x1), y.share(y1)), (x.share(x2), y.share(y2))
        places = f"{_places(*begin, '1')} {_places(*end, '2')}"
        head = f'marker-end="url(#arrow-{mark.colour[1:].lower()})"'
        look = f'stroke="{mark.colour}" stroke-width="2"{_dash(mark.dash)}'
        yield False, f"<line {places} {look} {head}{_data_name(mark)}/>"
        if mark.labels:
            yield False, _text(mark.labels[n], *end, "middle", 0, -7 if y2 >= 0 else 16)


@draw_mark.register
def _(mark: Rule, x: Axis, y: Axis) -> Iterator[tuple[bool, str]]:
    along = x if mark.axis == "x" else y
    at = along.share(mark.at)
    drawn = f"M{_unit(at)} 0V1000" if mark.axis == "x" else f"M0 {_unit(1 - at)}H1000"
    yield True, f'<path class="rule" stroke="{GREY}"{_dash(mark.dash)} d="{drawn}"/>'
    if mark.name and mark.axis == "x":
        yield False, _upright(mark.name, _share(at), "0", "end", -3, -4, "small")
    elif mark.name:
        yield False, _text(mark.name, 0, at, "start", 3, -4, ' class="small"')


@draw_mark.register
def _(mark: Heat, x: Axis, y: Axis) -> Iterator[tuple[bool, str]]:
    low, high = mark.span
    ends = f'data-span="{low:.6g} {high:.6g}" data-unit="{safe(mark.unit or "value")}"'
    left, right = sorted(x.share(edge) for edge in mark.ends("x"))
    below, above = sorted(y.share(edge) for edge in mark.ends("y"))
    place = f'x="{_unit(left)}" y="{_unit(1 - above)}" preserveAspectRatio="none"'
    size = f'width="{_unit(right - left)}" height="{_unit(above - below)}"'
    image = heat_image.image(mark, down=y.low > y.high)
    yield True, f'<image {place} {size} {ends} href="{image}"/>'
    if mark.digits is None:
        return
    for height, row in zip(mark.y, mark.z, strict=True):
        for at, value in zip(mark.x, row, strict=True):
            if value is not None:
                place = x.share(at), y.share(height), "middle", 0, 4
                small = " spare" * (abs(value) < 0.1 * max(map(abs, mark.span)))
                look = f' class="cell{small}" fill="{heat_image.ink(value, mark)}"'
                yield False, _text(f"{value:.{mark.digits}f}", *place, look)


def _data_name(mark: Mark) -> str:
    return f' data-name="{safe(mark.name)}"' if mark.name else ""


def _path(xs: Values, ys: Values, x: Axis, y: Axis, end: str = "") -> str:
    """Return an SVG path through points, with a gap at each missing value.

    - `end`: text after each uninterrupted part, such as "Z" to close it
    """
    parts: list[list[str]] = [[]]
    for at, height in zip(xs, ys, strict=True):
        if at is None or height is None or not _drawable(at, x) or not _drawable(height, y):
            parts.append([])
        else:
            parts[-1].append(f"{_unit(x.share(at))} {_unit(1 - y.share(height))}")
    return "".join(f"M{'L'.join(part)}{end}" for part in parts if part)


def _band(mark: Band, x: Axis, y: Axis) -> str:
    bounded = [
        (at, low, high)
        for at, low, high in zip(*map(short, (mark.x, mark.low, mark.high)), strict=True)
        if None not in (at, low, high)
    ]
    if not bounded:
        return ""
    at, low, high = zip(*bounded, strict=True)
    return _path(at + at[::-1], low + high[::-1], x, y, "Z")


def _markers(
    xs: Values, ys: Values, x: Axis, y: Axis, marker: str, colour: str, size: float, name: str
) -> str:
    """Draw a marker at each point.

    Circles are elements of their own. Other markers refer to shapes that the page defines.
    """
    drawn = []
    for at, height in zip(short(xs), short(ys), strict=True):
        if at is None or height is None or not _drawable(at, x) or not _drawable(height, y):
            continue
        place = x.share(at), y.share(height)
        if marker == "circle":
            drawn.append(f'<circle {_places(*place, "", "c")} r="{size / 2:g}"/>')
        else:
            scale = f'<use href="#mark-{marker}" transform="scale({size / 10:g})"/>'
            drawn.append(f'<svg class="at" {_places(*place)}>{scale}</svg>')
    return f'<g class="points" fill="{colour}" stroke="{colour}"{name}>{"".join(drawn)}</g>'


def _legend(figure: Figure) -> str:
    """Draw the legend: each name with a sample of its mark, and the palette of all heat maps.

    The palette is left out if heat maps have different ones.
    """
    marks = {}
    for mark in figure.marks:
        marks.setdefault(mark.name, mark)
    entries = [f"<span>{_swatch(marks[name])}{safe(name)}</span>" for name in legend_names(figure)]
    heats = [mark for mark in figure.marks if isinstance(mark, Heat) and mark.bar]
    if heats and one_palette(figure):
        entries.append(_bar(heats[0]))
    return f'<div class="legend">{"".join(entries)}</div>' if entries else ""


def _swatch(mark: Mark) -> str:
    match mark:
        case Line() | Arrows():
            look = f'class="line" stroke="{mark.colour}" stroke-width="2"{_dash(mark.dash)}'
            drawn = f'<path {look} d="M0 6H26"/>'
        case Band() | Area():
            faint = isinstance(mark, Band) or mark.faint
            kind = "band" if faint else "area"
            drawn = f'<path class="{kind}" fill="{mark.colour}" d="M0 1H26V11H0Z"/>'
        case _:
            drawn = ""
    marker = getattr(mark, "marker", "")
    if marker:
        colour = getattr(mark, "colour", GREY)
        shape = f'<use href="#mark-{marker}" transform="scale(.8)"/>'
        drawn += (
            f'<svg class="at points" x="13" y="6" fill="{colour}" stroke="{colour}">{shape}</svg>'
        )
    return f'<svg class="swatch" width="26" height="12">{drawn}</svg>'


def _bar(mark: Heat) -> str:
    low, high = mark.span
    palette = (
        f'<image width="90" height="10" preserveAspectRatio="none" href="{heat_image.bar(mark)}"/>'
    )
    drawn = f'<svg class="swatch" width="90" height="10">{palette}</svg>'
    return f'<span class="bar">{number(low, 4)} {drawn} {number(high, 4)} {safe(mark.unit)}</span>'


def _grid(x: Axis, y: Axis, panel: Panel) -> str:
    """Draw grid lines at all ticks of y, and at ticks of x that are numbers."""
    lines = [f"M{_unit(x.share(value))} 0V1000" for value, _ in x.ticks if not panel.x_names]
    lines += [f"M0 {_unit(1 - y.share(value))}H1000" for value, _ in y.ticks]
    return _stretched(f'<path class="grid" d="{"".join(lines)}"/>')


def _ticks(panel: Panel, x: Axis, y: Axis) -> str:
    drawn = []
    crowded = [False] * len(x.ticks) if panel.x_names else _crowded(x)
    for (value, text), spare in zip(x.ticks, crowded, strict=True):
        at = x.share(value)
        if panel.x_names:
            drawn.append(_upright(_cut(text), _share(at), "100%", "end", -6, 4))
        else:
            drawn.append(_text(text, at, 0, "middle", 0, 16, ' class="spare"' * spare))
    for value, text in y.ticks:
        lines = _lines(text)
        for n, line in enumerate(lines):
            down = 4 + (LINE - 3) * (n - (len(lines) - 1) / 2)
            drawn.append(_text(line, 0, y.share(value), "end", -6, down))
    return f'<g class="ticks">{"".join(drawn)}</g>'


def _crowded(x: Axis) -> list[bool]:
    """Test for each tick whether its label would touch an earlier one on a narrow axis."""
    crowded, free = [], -inf
    for value, text in x.ticks:
        middle, half = NARROW * x.share(value), LETTER * len(text) / 2
        crowded.append(middle - half < free)
        free = free if crowded[-1] else middle + half + LETTER
    return crowded


def _y_title(title: str, beside: float) -> str:
    return _upright(title, f"{-beside - 6:.0f}", "50%", "middle", 0, 0) if title else ""


def _upright(
    text: str, x: str, y: str, anchor: str, along: float, down: float, kind: str = ""
) -> str:
    """Draw vertical text, which reads from bottom to top."""
    turned = f'transform="rotate(-90)" text-anchor="{anchor}" x="{along}" y="{down}"'
    look = f' class="{kind}"' if kind else ""
    return f'<svg class="at" x="{x}" y="{y}"><text {turned}{look}>{safe(text)}</text></svg>'


def _text(
    text: str, x: float, y: float, anchor: str, right: float, down: float, more: str = ""
) -> str:
    shift = f' dx="{right}"' if right else ""
    place = f'{_places(x, y)}{shift} dy="{down:g}" text-anchor="{anchor}"'
    return f"<text {place}{more}>{safe(text)}</text>"


def _places(x: float, y: float, n: str = "", letter: str = "") -> str:
    """Format a point as SVG attributes such as `x="25%" y="50%"`.

    - `n`, `letter`: suffix and prefix of the names, as in `x1` of lines and `cx` of circles
    """
    return f'{letter}x{n}="{_share(x)}" {letter}y{n}="{_share(1 - y)}"'


def _share(part: float) -> str:
    return f"{100 * part:.3f}".rstrip("0").rstrip(".") + "%"


def _unit(part: float) -> str:
    return f"{1000 * part:.1f}".removesuffix(".0")


def _dash(dash: Dash) -> str:
    return f' stroke-dasharray="{DASHES[dash]}"' if DASHES[dash] else ""


def _drawable(value: float, along: Axis) -> bool:
    return value > 0 if along.log else value - value == 0


def _ends(along: Axis) -> str:
    return f"{along.low:.9g} {along.high:.9g}{' log' if along.log else ''}"


def _lines(text: str) -> list[str]:
    return [_cut(line) for line in text.split("\n")]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _x_ticks(panel: Panel) -> int:
    return COLUMN // 14 if panel.x_names else 5


def _y_ticks(panel: Panel, figure: Figure) -> int:
    # The panel is as high as it is wide
    if panel.square and panel.y_names:
        columns = min(figure.columns, len(figure.panels))
        return max(2, int(min(480, 1000 / columns - 60) / (LINE - 3)))
    return max(2, int(_high(figure) / (LINE - 3 if panel.y_names else 30)))


def _high(figure: Figure) -> int:
    return figure.height or (300 if figure.columns == 1 else 170)


def _shape(panel: Panel, x: Axis, y: Axis) -> float:
    """Return width / height of a panel whose axes have the same scale."""
    return abs((x.high - x.low) / (y.high - y.low))


def _has_heat(panel: Panel) -> bool:
    return any(isinstance(mark, Heat) for mark in panel.marks)
