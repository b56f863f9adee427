"""Classes that describe a figure as panels of marks, in plain numbers and text.

    Figure ─ panels ─▶ Panel ─ marks ─▶ Mark: Line Stems Band Area Points Arrows Rule Heat

`html.to_html` and `matplotlib.to_matplotlib` draw figures; `Figure.alt` describes them, and
`data_table` lists their numbers. Coordinates are numbers; None leaves a gap. If a panel has names
for an axis, the coordinate n means the n-th name, so two tokens may have the same name.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import Literal, NamedTuple, TypedDict

Values = Sequence[float | None]
Name = Literal["x", "y"]
Dash = Literal["solid", "dash", "dot", "dashdot"]
Side = Literal["above", "right above", "left below", "right", "middle"]
Marker = Literal["", "circle", "diamond", "square", "triangle", "x", "dash"]

# Colours of Okabe and Ito that contrast with both white and black
BLUE, VERMILION, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#888888"
WHITE = "#FFFFFF"  # only for marks on the strongest colours
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, GREY)
DASHES: tuple[Dash, ...] = ("solid", "dash", "dot", "dashdot")
MARKERS: tuple[Marker, ...] = ("circle", "diamond", "square", "triangle", "x")


class Series(NamedTuple):
    """The numbers of a mark for the data table: a value at each coordinate."""

    panel: str
    name: str
    at: str
    places: Sequence[str]
    values: Values


@dataclass(frozen=True)
class Mark:
    """A shape in a panel. Axes, legends, data tables and renderers call its methods.

    A kind of mark overrides the methods that do not fit.
    """

    name = ""
    guide = False  # True for marks without data, such as rules, which only mark a place
    styled = False  # True if marks of the same name get the same colour by default

    @property
    def legend(self) -> str:
        """Return the mark's entry in the legend, or "" if it has none."""
        return "" if self.guide else self.name

    @property
    def note(self) -> str:
        """Return a sentence that states how the drawing differs from the data, or ""."""
        return ""

    @property
    def even(self) -> bool:
        """Test whether all lists of coordinates have the same length."""
        lists = [getattr(self, field.name) for field in fields(self) if field.name != "labels"]
        return len({len(one) for one in lists if isinstance(one, list | tuple | range)}) < 2

    def along(self, axis: Name) -> Iterable[float | None]:
        """Return the mark's coordinates along an axis. The axis must include all of them."""
        return getattr(self, axis)

    def ends(self, axis: Name) -> tuple[float, float] | None:
        """Return the axis range of a mark that fills its panel, as a heat map does, or None."""
        return None

    def series(self, panel: "Panel") -> Iterator[Series]:
        """Yield the mark's numbers for the data table.

        The names of coordinates come from `panel`.
        """
        return iter(())


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
    x_names: Sequence[str] = ()  # names of 0, 1, 2, … on that axis
    y_names: Sequence[str] = ()
    x_ticks: Sequence[float] = ()
    y_ticks: Sequence[float] = ()
    y_down: bool = False
    square: bool = False  # True: equal scales along x and y
    bare: bool = False  # True: names along the axes, without numbers and grid

    def texts(self, axis: Name, values: Values) -> list[str]:
        """Return the text of each coordinate: its name, if the axis has names, or the number."""
        names = self.x_names if axis == "x" else self.y_names
        return [names[int(v)] if names and v is not None else format_number(v) for v in values]


@dataclass(frozen=True)
class FigureNumbers:
    """The numbers behind a figure; `note` states which numbers were left out, or is ""."""

    heading: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    title: str
    panels: Sequence[Panel]
    says: str  # one or two sentences made from the data, which describe the figure
    columns: int = 1
    height: int = 0  # height of a row of panels, in pixels of the screen; 0: automatic
    # A table that replaces `data_table` if the numbers of the marks are not enough
    listed: FigureNumbers | None = None

    def __repr__(self) -> str:
        return f"Figure({self.title!r}, {len(self.panels)} panels)"

    @property
    def marks(self) -> list[Mark]:
        """Return the marks of all panels."""
        return [mark for panel in self.panels for mark in panel.marks]

    @property
    def alt(self) -> str:
        """The text for readers who cannot see the figure: its description and its notes."""
        return " ".join([self.says, *sorted({mark.note for mark in self.marks} - {""})])


class Style(TypedDict):
    colour: str
    dash: Dash
    marker: Marker


def style(n: int) -> Style:
    """Return colour, dash and marker of the n-th line; the first twenty all differ."""
    turn, colour = divmod(n, len(COLOURS))
    return {
        "colour": COLOURS[colour],
        "dash": DASHES[(colour + turn) % len(DASHES)],
        "marker": MARKERS[(colour + turn) % len(MARKERS)],
    }


def short(values: Values) -> list[float | None]:
    """Round numbers to five significant digits; NaN and infinity become None."""
    return [None if v is None or not isfinite(v) else float(f"{v:.5g}") for v in values]


def format_number(value: float | None) -> str:
    """Format a number with four digits, or an integer with thousands separators.

    None, NaN and infinity become "–".

    >>> format_number(4096), format_number(0.123456), format_number(None)
    ('4,096', '0.1235', '–')
    """
    if value is None or not isfinite(value):
        return "–"
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"
