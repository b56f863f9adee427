"""Classes of marks, the shapes in a panel of a figure: lines, points, heat maps and others.

Both renderers register a `draw_mark` for each class.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from posenc.show.report.drawing.figure import (
    BLUE,
    Dash,
    Mark,
    Marker,
    Name,
    Panel,
    Series,
    Side,
    Values,
    format_number,
    short,
)

CELLS = 256  # cells along a side of a heat map


@dataclass(frozen=True)
class Line(Mark):
    """A curve. Its name is in the legend, or beside the end of the curve if `direct`."""

    styled = True

    x: Values
    y: Values
    name: str = ""
    colour: str = BLUE
    dash: Dash = "solid"
    marker: Marker = ""
    width: float = 2
    direct: bool = False

    @property
    def legend(self) -> str:
        return "" if self.direct else self.name

    def series(self, panel: Panel) -> Iterator[Series]:
        yield _curve(self.name, self.x, self.y, panel)


@dataclass(frozen=True)
class Stems(Mark):
    """A stem plot of separate values, such as channels: a line from 0 to a marker for each."""

    styled = True

    x: Sequence[float]
    y: Values
    name: str = ""
    colour: str = BLUE
    marker: Marker = "circle"

    def along(self, axis: Name) -> Iterable[float | None]:
        return self.x if axis == "x" else [0.0, *self.y]

    def series(self, panel: Panel) -> Iterator[Series]:
        yield _curve(self.name, self.x, self.y, panel)


@dataclass(frozen=True)
class Band(Mark):
    """The area between two curves."""

    styled = True

    x: Values
    low: Values
    high: Values
    name: str = ""
    colour: str = BLUE

    def along(self, axis: Name) -> Iterable[float | None]:
        return self.x if axis == "x" else [*self.low, *self.high]

    def series(self, panel: Panel) -> Iterator[Series]:
        places = panel.texts("x", self.x)
        for end, values in (("lower end", self.low), ("upper end", self.high)):
            name = f"{self.name}, {end}" if self.name else end
            yield Series(panel.title, name, panel.x_title, places, values)


@dataclass(frozen=True)
class Area(Mark):
    """Filled polygons, separated by None. `faint` makes them transparent."""

    x: Values
    y: Values
    name: str = ""
    colour: str = BLUE
    faint: bool = False


@dataclass(frozen=True)
class Points(Mark):
    """Separate markers, with `labels` on one `side` of them.

    Without a marker only the labels are drawn, in the colour of text if `colour` is "".
    """

    styled = True

    x: Values
    y: Values
    name: str = ""
    colour: str = BLUE
    marker: Marker = "circle"
    size: float = 9
    labels: Sequence[str] = ()
    side: Side = "above"

    def series(self, panel: Panel) -> Iterator[Series]:
        # Labels without a marker are text, not data
        if self.marker:
            yield _curve(self.name, self.x, self.y, panel)


@dataclass(frozen=True)
class Arrows(Mark):
    """Arrows from points (x, y) to points (to_x, to_y), with `labels` at their heads."""

    x: Sequence[float]
    y: Sequence[float]
    to_x: Sequence[float]
    to_y: Sequence[float]
    name: str = ""
    colour: str = BLUE
    dash: Dash = "solid"
    labels: Sequence[str] = ()

    def along(self, axis: Name) -> Iterable[float | None]:
        return [*self.x, *self.to_x] if axis == "x" else [*self.y, *self.to_y]

    def series(self, panel: Panel) -> Iterator[Series]:
        ends = zip(map(format_number, self.x), map(format_number, self.y), strict=True)
        places = [f"({x}, {y})" for x, y in ends]
        for end, values in (("to x", self.to_x), ("to y", self.to_y)):
            yield Series(panel.title, f"{self.name} {end}".strip(), "from", places, values)


@dataclass(frozen=True)
class Rule(Mark):
    """A straight line across the panel, at the value `at` of one axis, with its name beside it."""

    guide = True

    at: float
    axis: Name
    name: str = ""
    dash: Dash = "dot"

    def along(self, axis: Name) -> Iterable[float | None]:
        return [self.at] if self.axis == axis else []


@dataclass(frozen=True)
class Heat(Mark):
    """A heat map of the values z[row][column]. The function `heat` shrinks large ones.

    With `signed`, 0 has the colour of the paper, positive values are vermilion, negative ones blue.
    Otherwise `low` has the colour of the paper and `high` is blue. Missing values have the colour
    of the paper. If `high` is None, it is the largest magnitude.
    """

    z: Sequence[Values]
    x: Sequence[float]
    y: Sequence[float]
    signed: bool = False
    unit: str = ""
    low: float = 0
    high: float | None = None
    bar: bool = True
    block: tuple[int, int] = (
        1,
        1,
    )  # rows and columns of the data in one cell, which shows their extreme
    digits: int | None = None  # digits of the number in each cell; None: no numbers

    @property
    def span(self) -> tuple[float, float]:
        """Return the values at both ends of the palette."""
        magnitudes = [abs(v) for row in self.z for v in row if v is not None]
        high = max(magnitudes, default=1.0) or 1.0 if self.high is None else self.high
        return (-high if self.signed else self.low), high

    @property
    def note(self) -> str:
        rows, columns = self.block
        if self.block == (1, 1):
            return ""
        return f"Each cell shows, of {rows} × {columns}, the value farthest from 0."

    @property
    def even(self) -> bool:
        return {len(row) for row in self.z} == {len(self.x)} and len(self.z) == len(self.y)

    def ends(self, axis: Name) -> tuple[float, float]:
        """Return the outer edges of the first and last cell along an axis.

        The centres of cells are evenly spaced.

        >>> Heat([[1, 2, 3]], [0, 10, 20], [7]).ends("x")
        (-5.0, 25.0)
        """
        cells = self.x if axis == "x" else self.y
        half = (cells[-1] - cells[0]) / (len(cells) - 1) / 2 if len(cells) > 1 else 0.5
        return cells[0] - half, cells[-1] + half

    def series(self, panel: Panel) -> Iterator[Series]:
        places = panel.texts("x", self.x)
        for name, values in zip(panel.texts("y", self.y), self.z, strict=True):
            yield Series(panel.title, name, panel.x_title, places, values)


KINDS: tuple[type[Mark], ...] = (*Mark.__subclasses__(),)


def _curve(name: str, x: Values, y: Values, panel: Panel) -> Series:
    """Return the points of a curve as a series for the data table.

    The table lists y at each x, or x at each y if the y axis has names.
    """
    if panel.y_names:
        places = panel.texts("y", y)
        return Series(panel.title, name or panel.x_title, panel.y_title, places, x)
    places = panel.texts("x", x)
    return Series(panel.title, name or panel.y_title, panel.x_title, places, y)


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
    """Make a heat map of at most 256 cells a side.

    In a larger map, each cell shows the value of largest magnitude in a block.
    """
    rows, columns = ceil(len(z) / CELLS), ceil(len(z[0]) / CELLS)
    cells = [
        short([_farthest(z[r : r + rows], c, c + columns) for c in range(0, len(z[0]), columns)])
        for r in range(0, len(z), rows)
    ]
    x, y = x or range(len(z[0])), y or range(len(z))
    x, y, block = x[::columns], y[::rows], (rows, columns)
    return Heat(cells, x, y, signed, unit, low, high, bar, block, digits)


def _farthest(rows: Sequence[Values], first: int, last: int) -> float | None:
    """Return the number farthest from 0 in a block of a heat map, or None if all are missing."""
    return max((v for row in rows for v in row[first:last] if v is not None), key=abs, default=None)
