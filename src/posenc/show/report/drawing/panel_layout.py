"""The layout of panels in a Matplotlib figure: widths, heights, titles and gaps.

`html` leaves the layout to the browser. All lengths are pixels of the screen. The width is

    60 + columns · column + (columns − 1) · gap + BAR      60: the first y axis; BAR: with heat maps

and the height of a row of panels is `head` (titles), `row` (the panel) and `foot` (ticks, title of
x).
"""

from functools import cached_property
from math import ceil
from textwrap import wrap

from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import Heat

LETTER, LINE = 6.5, 17  # width of a letter and height of a line, in pixels
BAR = 70  # pixels of a colour bar with its numbers and unit


class PanelLayout:
    """The layout of a figure that has `columns` columns and is `width` pixels wide."""

    def __init__(self, figure: Figure, columns: int, width: int):
        self.panels, self.columns, self.width = figure.panels, columns, width
        self.rows = ceil(len(figure.panels) / columns)
        self.heats = [mark for mark in figure.marks if isinstance(mark, Heat)]
        self.wanted = figure.height
        self.shared = one_palette(figure)

    @cached_property
    def bars(self) -> bool:
        """Test whether each panel has its own colour bar."""
        return not self.shared and any(heat.bar for heat in self.heats)

    def beside(self, n: int) -> Panel | None:
        """Return the panel to the left, or None in the first column."""
        return self.panels[n - 1] if n % self.columns else None

    def below(self, n: int) -> Panel | None:
        """Return the panel below, or None in the last row."""
        following = n + self.columns
        return self.panels[following] if following < len(self.panels) else None

    def x_title(self, n: int) -> list[str]:
        """Return the lines of the x axis's title, or [] if the panel below has the same title."""
        title, below = self.panels[n].x_title, self.below(n)
        return [] if below and below.x_title == title else self._wrapped(title)

    def y_title(self, n: int) -> str:
        """Return the title of the y axis, or "" if the panel to the left has the same title."""
        title, beside = self.panels[n].y_title, self.beside(n)
        return "" if beside and beside.y_title == title else title

    def title(self, n: int) -> list[str]:
        """Return the lines of the title above the panel."""
        return self._wrapped(self.panels[n].title)

    def x_names(self, n: int) -> bool:
        """Test whether the panel writes the names on its x axis.

        Panels in a column with the same names write them once, at the bottom.
        """
        below = self.below(n)
        return not (below and below.x_names == self.panels[n].x_names)

    def y_names(self, n: int) -> bool:
        """Test whether the panel writes the names on its y axis.

        Panels in a row with the same names write them once, on the left.
        """
        beside = self.beside(n)
        return not (beside and beside.y_names == self.panels[n].y_names)

    @cached_property
    def gap(self) -> float:
        """The width of the gap between two columns, in pixels."""
        inner = [n for n in range(len(self.panels)) if n % self.columns]
        ticks = any(self.y_names(n) if p.y_names else not p.bare for n, p in enumerate(self.panels))
        titles = any(self.y_title(n) for n in inner)
        # numbers of ticks take 46, a title written upwards 20, a colour bar BAR
        return (46 if ticks else 14) + 20 * titles + BAR * self.bars

    @cached_property
    def room(self) -> float:
        """The width of all panels and the gaps between them, in pixels."""
        return self.width - 60 - BAR * bool(self.heats)

    @cached_property
    def column(self) -> float:
        """The width of one panel, in pixels."""
        return (self.room - self.gap * (self.columns - 1)) / self.columns

    @cached_property
    def row(self) -> float:
        """The height of one panel, in pixels."""
        if any(panel.square for panel in self.panels):
            shape = [_shape(panel) for panel in self.panels if panel.square]
            # Equal steps along both axes: height = width · shape
            return min(max(shape) * self.column, 520)
        return self.wanted or (300 if self.columns == 1 else 170)

    @cached_property
    def head(self) -> float:
        """The height of the titles above each panel, in pixels."""
        lines = max(len(self.title(n)) for n in range(len(self.panels)))
        return LINE * lines + 9 * bool(lines)

    def foot(self, n: int) -> float:
        """Return the height of ticks and titles below a panel, in pixels."""
        names = self.panels[n].x_names if self.x_names(n) else ()
        # names are written upwards
        ticks = 20 + 5 * max(map(len, names)) if names else 6 if self.panels[n].bare else 20
        return ticks + LINE * len(self.x_title(n))

    @cached_property
    def between(self) -> float:
        """The height between two rows in pixels, which holds their ticks and titles."""
        inner = [n for n in range(len(self.panels)) if self.below(n)]
        return self.head + max((self.foot(n) for n in inner), default=0) + 6

    @cached_property
    def under(self) -> float:
        """The height below the last row, in pixels."""
        return 8 + max(self.foot(n) for n in range(len(self.panels)) if not self.below(n))

    def _wrapped(self, text: str) -> list[str]:
        return wrap(text, max(12, int(self.column / LETTER)))


def one_palette(figure: Figure) -> bool:
    """Test whether all heat maps have the same palette with the same ends."""
    heats = [mark for mark in figure.marks if isinstance(mark, Heat)]
    return len({(heat.signed, heat.unit, heat.bar, heat.span) for heat in heats}) < 2


def legend_names(figure: Figure) -> list[str]:
    """Return the distinct names in the legend of a figure."""
    return [name for name in dict.fromkeys(mark.legend for mark in figure.marks) if name]


def _shape(panel: Panel) -> float:
    """Return height / width of a panel whose axes have the same scale."""
    heats = [mark for mark in panel.marks if isinstance(mark, Heat)]
    if heats:
        return len(heats[0].y) / len(heats[0].x)
    (x0, x1), (y0, y1) = panel.x_range or (0, 1), panel.y_range or (0, 1)
    return (y1 - y0) / (x1 - x0)
