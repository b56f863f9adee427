"""List the numbers behind a figure as a table, for readers who do not see the figure.

Curves over the same places are columns side by side, others have one row a point. Of many places
or cells a few are listed, evenly spaced and with both ends, and the note says of how many.
"""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import NamedTuple

from posenc.show.report.drawing.figure import (
    Area,
    Arrows,
    Band,
    Figure,
    Heat,
    Line,
    Panel,
    Points,
    Rule,
    Stems,
    Table,
    Values,
)

ROWS, COLUMNS = 24, 12
MOST_ROWS = 240  # rows of all panels together


class Series(NamedTuple):
    """Values at places, with the names of both."""

    panel: str
    name: str
    at: str
    places: Sequence[str]
    values: Values


def data_table(figure: Figure) -> Table:
    """The numbers of all panels as text; of many, an evenly spaced choice.

    Beside a heat map other marks only point at something, so they are not listed.
    """
    if figure.listed is not None:
        return figure.listed
    notes = [
        f"{mark.name}."
        for panel in figure.panels
        for mark in panel.marks
        if isinstance(mark, Rule) and mark.name
    ]
    if figure.frames:
        notes.append(f"One of {len(figure.frames)} states.")
    heats = [(p, mark) for p in figure.panels for mark in p.marks if isinstance(mark, Heat)]
    if len(heats) == len(figure.panels) and len({tuple(mark.x) for _, mark in heats}) == 1:
        cells = _heat_table(heats)
    else:
        series = [line for panel in figure.panels for line in _series(panel)]
        same = all(line.places == series[0].places for line in series)
        cells = _side_by_side(series) if same else _point_by_point(series)
    return Table(cells.heading, cells.rows, " ".join([cells.note, *dict.fromkeys(notes)]).strip())


def format_number(value: float | None) -> str:
    """A number with four digits, or whole with separators; – for None.

    >>> format_number(4096), format_number(0.123456), format_number(None)
    ('4,096', '0.1235', '–')
    """
    if value is None or not isfinite(value):
        return "–"
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"


def evenly_spaced(count: int, wanted: int) -> list[int]:
    """Evenly spaced indices of 0 … count − 1, both ends included.

    >>> evenly_spaced(9, 3)
    [0, 4, 8]
    """
    return sorted(
        {round(n * (count - 1) / (wanted - 1)) for n in range(wanted)} if count else set()
    )


def _heat_table(heats: list[tuple[Panel, Heat]]) -> Table:
    """Rows of cells, panel after panel."""
    several = len(heats) > 1
    deep = max(6, min(ROWS, MOST_ROWS // len(heats)))
    rows = []
    for panel, mark in heats:
        columns, y = evenly_spaced(len(mark.x), COLUMNS), _axis_texts(panel, mark.x, mark.y)[1]
        rows += [
            [panel.title] * several + [y[r]] + [format_number(mark.z[r][c]) for c in columns]
            for r in evenly_spaced(len(mark.y), deep)
        ]
    first, mark = heats[0]
    x = _axis_texts(first, mark.x, mark.y)[0]
    corner = " \\ ".join(title for title in (first.y_title, first.x_title) if title)
    complete = len(mark.y) <= deep and len(mark.x) <= COLUMNS
    note = f"Picked evenly from {len(mark.y)} rows and {len(mark.x)} columns."
    heading = [x[c] for c in evenly_spaced(len(mark.x), COLUMNS)]
    return Table(["panel"] * several + [corner, *heading], rows, "" if complete else note)


def _series(panel: Panel) -> Iterator[Series]:
    """The series of a panel, at the names of an axis where it has names, else at its numbers."""
    for mark in panel.marks:
        name = getattr(mark, "name", "")
        match mark:
            case Points() if not mark.marker:
                pass  # words, which are not numbers
            case Line() | Points() if panel.y_names:
                _, places = _axis_texts(panel, mark.x, mark.y)
                yield Series(panel.title, name or panel.x_title, panel.y_title, places, mark.x)
            case Line() | Stems() | Points():
                places, _ = _axis_texts(panel, mark.x, mark.y)
                yield Series(panel.title, name or panel.y_title, panel.x_title, places, mark.y)
            case Band():
                places, _ = _axis_texts(panel, mark.x, mark.low)
                for end, values in (("lower end", mark.low), ("upper end", mark.high)):
                    full_name = ", ".join(part for part in (name, end) if part)
                    yield Series(panel.title, full_name, panel.x_title, places, values)
            case Arrows():
                places = [
                    f"({format_number(x)}, {format_number(y)})"
                    for x, y in zip(mark.x, mark.y, strict=True)
                ]
                for end, values in (("to x", mark.to_x), ("to y", mark.to_y)):
                    yield Series(panel.title, f"{name} {end}".strip(), "from", places, values)
            case Heat():
                x, y = _axis_texts(panel, mark.x, mark.y)
                for row, values in zip(y, mark.z, strict=True):
                    yield Series(panel.title, row, panel.x_title, x, values)
            case Rule() | Area():
                pass


def _side_by_side(series: list[Series]) -> Table:
    places = series[0].places
    names = [_full_name(values, series) for values in series]
    if len(series) < COLUMNS:
        rows = evenly_spaced(len(places), ROWS)
        cells = [[places[r], *(format_number(values.values[r]) for values in series)] for r in rows]
        heading = [series[0].at, *names]
    else:
        rows = evenly_spaced(len(places), COLUMNS)
        cells = [
            [name, *(format_number(values.values[r]) for r in rows)]
            for name, values in zip(names, series, strict=True)
        ]
        heading = [series[0].at, *(places[r] for r in rows)]
    left_out = len(rows) < len(places)
    return Table(heading, cells, f"Picked evenly from {len(places)} places." if left_out else "")


def _point_by_point(series: list[Series]) -> Table:
    chosen = [series[n] for n in evenly_spaced(len(series), MOST_ROWS // 3)]
    deep = max(3, min(ROWS, MOST_ROWS // len(chosen)))
    rows = [
        [_full_name(curve, series), curve.places[n], format_number(curve.values[n])]
        for curve in chosen
        for n in evenly_spaced(len(curve.places), deep)
    ]
    at = " or ".join(dict.fromkeys(curve.at for curve in series if curve.at))
    left_out = any(len(curve.places) > deep for curve in series)
    notes = ["Some of the rows, picked evenly."] * (len(chosen) < len(series))
    notes += [f"At most {deep} points of each, picked evenly."] * left_out
    return Table(["", at, "value"], rows, " ".join(notes))


def _full_name(curve: Series, series: list[Series]) -> str:
    """The name of a series, with that of its panel where there are several."""
    several = len({other.panel for other in series}) > 1
    return ": ".join(part for part in (curve.panel if several else "", curve.name) if part)


def _axis_texts(panel: Panel, x: Values, y: Values) -> tuple[list[str], list[str]]:
    def names(values: Values, labels: Sequence[str]) -> list[str]:
        return [labels[int(v)] if labels and v is not None else format_number(v) for v in values]

    return names(x, panel.x_names), names(y, panel.y_names)
