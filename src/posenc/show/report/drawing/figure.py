"""Describe a figure before anything draws it: panels of marks, in plain numbers and words.

    Figure ─ panels ─▶ Panel ─ marks ─▶ Line Stems Band Area Points Arrows Rule Heat

`screen.draw` and `paper.matplotlib` draw it; `Figure.alt` describes it, and
`data_table` lists its numbers.
A point of an axis is a number; None leaves a gap. Where a panel gives names for an axis, the
number n stands for the n-th name, so that two tokens may have the same name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Literal, TypedDict

Values = Sequence[float | None]
Dash = Literal["solid", "dash", "dot", "dashdot"]
Side = Literal["above", "right above", "left below", "right", "middle"]
Marker = Literal["", "circle", "diamond", "square", "triangle", "x", "dash"]

# Okabe and Ito's, of those that stand out from white and from black alike
BLUE, VERMILION, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#888888"
WHITE = "#FFFFFF"  # of marks on the strongest colours alone
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, GREY)
DASHES: tuple[Dash, ...] = ("solid", "dash", "dot", "dashdot")
MARKERS: tuple[Marker, ...] = ("circle", "diamond", "square", "triangle", "x")
CELLS = 256  # of a heat map along a side


@dataclass(frozen=True)
class Line:
    """A curve; with a name in the legend, or written at its end if `direct`."""

    x: Values
    y: Values
    name: str = ""
    colour: str = BLUE
    dash: Dash = "solid"
    marker: Marker = ""
    width: float = 2
    direct: bool = False


@dataclass(frozen=True)
class Stems:
    """Values of things that nothing joins, channels for instance: a line from 0 and a head each."""

    x: Sequence[float]
    y: Values
    name: str = ""
    colour: str = BLUE
    marker: Marker = "circle"


@dataclass(frozen=True)
class Band:
    """The room between two curves."""

    x: Values
    low: Values
    high: Values
    name: str = ""
    colour: str = BLUE


@dataclass(frozen=True)
class Area:
    """Filled polygons; None stands between two of them. `faint` lets the paper through."""

    x: Values
    y: Values
    name: str = ""
    colour: str = BLUE
    faint: bool = False


@dataclass(frozen=True)
class Points:
    """Marks that nothing joins; `labels` are written beside them, on one `side`.

    Without a marker only the labels are seen, in the colour of text if `colour` is "".
    """

    x: Values
    y: Values
    name: str = ""
    colour: str = BLUE
    marker: Marker = "circle"
    size: float = 9
    labels: Sequence[str] = ()
    side: Side = "above"


@dataclass(frozen=True)
class Arrows:
    """Arrows from points (x, y) to points (to_x, to_y); `labels` stand at their heads."""

    x: Sequence[float]
    y: Sequence[float]
    to_x: Sequence[float]
    to_y: Sequence[float]
    name: str = ""
    colour: str = BLUE
    dash: Dash = "solid"
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class Rule:
    """A line through the whole panel where an axis has the value `at`, named beside it."""

    at: float
    axis: Literal["x", "y"]
    name: str = ""
    dash: Dash = "dot"


@dataclass(frozen=True)
class Heat:
    """Values as colours, z[row][column]; `heat` makes one of any size.

    `signed`: 0 shows the paper, above it is vermilion, below blue. Else from `low` to `high`,
    viridis. Where there is no value the paper shows. `high` is the largest magnitude found if None.
    """

    z: Sequence[Values]
    x: Sequence[float]
    y: Sequence[float]
    signed: bool = False
    unit: str = ""
    low: float = 0
    high: float | None = None
    bar: bool = True
    block: tuple[int, int] = (1, 1)  # cells of which each shows the one farthest from 0
    digits: int | None = None  # of the number that is written in each cell; None: no number

    @property
    def span(self) -> tuple[float, float]:
        """The values at both ends of the palette."""
        magnitudes = [abs(v) for row in self.z for v in row if v is not None]
        high = max(magnitudes, default=1.0) or 1.0 if self.high is None else self.high
        return (-high if self.signed else self.low), high


Mark = Line | Stems | Band | Area | Points | Arrows | Rule | Heat


@dataclass(frozen=True)
class Panel:
    title: str
    marks: Sequence[Mark]
    x_title: str = ""
    y_title: str = ""
    x_log: bool = False
    y_log: bool = False
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    x_names: Sequence[str] = ()  # of 0, 1, 2, … on that axis
    y_names: Sequence[str] = ()
    x_ticks: Sequence[float] = ()
    y_ticks: Sequence[float] = ()
    y_down: bool = False
    square: bool = False  # a step along x is as long as one along y
    bare: bool = False  # no grid, no numbers along the axes: names alone


@dataclass(frozen=True)
class Frame:
    """Another state of all panels, mark by mark, as when a position advances."""

    name: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Table:
    """The numbers behind a figure; `note` says what was left out, if anything."""

    heading: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    title: str
    panels: Sequence[Panel]
    says: str  # one or two sentences, made from the data: what is to be seen
    columns: int = 1
    height: int = 0  # of a row of panels, in pixels of the screen; 0: as it fits
    frames: Sequence[Frame] = ()
    listed: Table | None = None  # in place of `data_table`, where numbers alone would not say it

    def __repr__(self) -> str:
        return f"Figure({self.title!r}, {len(self.panels)} panels)"

    @property
    def alt(self) -> str:
        """Text in place of the figure: `says`, and how heat maps were thinned."""
        blocks = {m.block for p in self.panels for m in p.marks if isinstance(m, Heat)} - {(1, 1)}
        thinned = [
            f"Each cell shows, of {rows} × {columns}, the value farthest from 0."
            for rows, columns in sorted(blocks)
        ]
        return " ".join([self.says, *thinned])


def heat(
    z: Sequence[Values],
    x: Sequence[float] = (),
    y: Sequence[float] = (),
    signed: bool = False,
    unit: str = "",
    low: float = 0,
    high: float | None = None,
    bar: bool = True,
    digits: int | None = None,
) -> Heat:
    """A heat map of at most 256 cells a side; larger ones show the extreme value of each block."""
    rows, columns = ceil(len(z) / CELLS), ceil(len(z[0]) / CELLS)
    cells = [
        short([_farthest(z[r : r + rows], c, c + columns) for c in range(0, len(z[0]), columns)])
        for r in range(0, len(z), rows)
    ]
    x, y = x or range(len(z[0])), y or range(len(z))
    x, y, block = x[::columns], y[::rows], (rows, columns)
    return Heat(cells, x, y, signed, unit, low, high, bar, block, digits)


def _farthest(rows: Sequence[Values], first: int, last: int) -> float | None:
    """The value of a block whose magnitude is largest; None where the block has no value."""
    return max((v for row in rows for v in row[first:last] if v is not None), key=abs, default=None)


class Style(TypedDict):
    colour: str
    dash: Dash
    marker: Marker


def style(n: int) -> Style:
    """Colour, dash and marker of the n-th line. Twenty differ, those of one colour in dash."""
    turn, colour = divmod(n, len(COLOURS))
    return {
        "colour": COLOURS[colour],
        "dash": DASHES[(colour + turn) % len(DASHES)],
        "marker": MARKERS[(colour + turn) % len(MARKERS)],
    }


def short(values: Values) -> list[float | None]:
    """Five digits, which is more than can be seen; None for what is not finite."""
    return [None if v is None or not isfinite(v) else float(f"{v:.5g}") for v in values]
