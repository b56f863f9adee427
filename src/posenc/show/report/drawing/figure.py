"""Describe a figure before anything draws it: panels of marks, in plain numbers and words.

    Figure ─ panels ─▶ Panel ─ marks ─▶ Mark: Line Stems Band Area Points Arrows Rule Heat

`html.draw` and `matplotlib.draw` draw it; `Figure.alt` describes it, and `data_table` lists
its numbers. A point of an axis is a number; None leaves a gap. Where a panel gives names for an
axis, the number n stands for the n-th name, so that two tokens may have the same name.
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

# Okabe and Ito's, of those that stand out from white and from black alike
BLUE, VERMILION, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#888888"
WHITE = "#FFFFFF"  # marks on the strongest colours alone
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, GREY)
DASHES: tuple[Dash, ...] = ("solid", "dash", "dot", "dashdot")
MARKERS: tuple[Marker, ...] = ("circle", "diamond", "square", "triangle", "x")


class Series(NamedTuple):
    """Numbers behind a mark, at places, with the names of both."""

    panel: str
    name: str
    at: str
    places: Sequence[str]
    values: Values


@dataclass(frozen=True)
class Mark:
    """A thing that is drawn in a panel, with its answers to axes, legends, tables and documents.

    A kind of mark gives answers of its own where these do not fit.
    """

    name = ""
    guide = False  # points at a place and is no datum, as rules do
    styled = False  # has the colour of its name in a document that gives it none

    @property
    def legend(self) -> str:
        """The entry in the legend; "" for none."""
        return "" if self.guide else self.name

    @property
    def note(self) -> str:
        """A sentence on how the drawing departs from the data; "" if it does not."""
        return ""

    @property
    def even(self) -> bool:
        """True if all lists of coordinates are equally long."""
        lists = [getattr(self, field.name) for field in fields(self) if field.name != "labels"]
        return len({len(one) for one in lists if isinstance(one, list | tuple | range)}) < 2

    def along(self, axis: Name) -> Iterable[float | None]:
        """The values that an axis has to hold."""
        return getattr(self, axis)

    def ends(self, axis: Name) -> tuple[float, float] | None:
        """The ends of an axis that the mark fills; None if an axis leaves room around it."""
        return None

    def series(self, panel: "Panel") -> Iterator[Series]:
        """The numbers behind it, in a panel that may have names for places."""
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
    square: bool = False  # a step along x is as long as one along y
    bare: bool = False  # no grid, no numbers along the axes: names alone

    def texts(self, axis: Name, values: Values) -> list[str]:
        """Places along an axis as they are written: by name, where the axis has names."""
        names = self.x_names if axis == "x" else self.y_names
        return [names[int(v)] if names and v is not None else format_number(v) for v in values]


@dataclass(frozen=True)
class Frame:
    """Another state of all panels, mark by mark, as when a position advances."""

    name: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class FigureNumbers:
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
    height: int = 0  # height of a row of panels, in pixels of the screen; 0: as it fits
    frames: Sequence[Frame] = ()
    # In place of `data_table`, where numbers alone would not say it.
    listed: FigureNumbers | None = None
    on_page: bool = True  # False: its page has it as a table

    def __repr__(self) -> str:
        return f"Figure({self.title!r}, {len(self.panels)} panels)"

    @property
    def marks(self) -> list[Mark]:
        """The marks of all panels."""
        return [mark for panel in self.panels for mark in panel.marks]

    @property
    def alt(self) -> str:
        """Text in place of the figure: `says`, and how the drawing departs from the data."""
        return " ".join([self.says, *sorted({mark.note for mark in self.marks} - {""})])


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


def format_number(value: float | None) -> str:
    """A number with four digits, or whole with separators; – for None.

    >>> format_number(4096), format_number(0.123456), format_number(None)
    ('4,096', '0.1235', '–')
    """
    if value is None or not isfinite(value):
        return "–"
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"
