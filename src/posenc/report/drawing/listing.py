"""The numbers behind a figure as a table, for readers who do not see it.

Curves over the same places stand side by side, others one point a row; of many places or cells a
few are picked, evenly and with both ends, and the note says of how many.
"""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import NamedTuple

from posenc.report.drawing.figure import (
    Arrows,
    Band,
    Figure,
    Heat,
    Line,
    Panel,
    Points,
    Rule,
    Table,
    Values,
)

ROWS, COLUMNS = 24, 12
MOST = 240  # rows of all panels together


class Series(NamedTuple):
    """Values at places, with the names of both."""

    panel: str
    name: str
    at: str
    places: Sequence[str]
    values: Values


def table(figure: Figure) -> Table:
    """The numbers of the panels as text, a picked few where there are many.

    Beside a heat map other marks only point at something, so that they are not listed.
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
        made = _heats(heats)
    else:
        series = [one for panel in figure.panels for one in _series(panel)]
        same = all(one.places == series[0].places for one in series)
        made = _side_by_side(series) if same else _point_by_point(series)
    return Table(made.heading, made.rows, " ".join([made.note, *dict.fromkeys(notes)]).strip())


def told(value: float | None) -> str:
    """A number as it is read.

    >>> told(4096), told(0.123456), told(None)
    ('4,096', '0.1235', '–')
    """
    if value is None or not isfinite(value):
        return "–"
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"


def picked(count: int, most: int) -> list[int]:
    """Evenly spaced indices of 0 … count − 1, both ends included.

    >>> picked(9, 3)
    [0, 4, 8]
    """
    return sorted({round(n * (count - 1) / (most - 1)) for n in range(most)} if count else set())


def _heats(heats: list[tuple[Panel, Heat]]) -> Table:
    """Rows of cells, panel after panel."""
    several = len(heats) > 1
    deep = max(6, min(ROWS, MOST // len(heats)))
    rows = []
    for panel, mark in heats:
        columns, y = picked(len(mark.x), COLUMNS), _named(panel, mark.x, mark.y)[1]
        rows += [
            [panel.title] * several + [y[r]] + [told(mark.z[r][c]) for c in columns]
            for r in picked(len(mark.y), deep)
        ]
    first, mark = heats[0]
    x = _named(first, mark.x, mark.y)[0]
    corner = " \\ ".join(title for title in (first.y_title, first.x_title) if title)
    whole = len(mark.y) <= deep and len(mark.x) <= COLUMNS
    note = f"Picked evenly from {len(mark.y)} rows and {len(mark.x)} columns."
    heading = [x[c] for c in picked(len(mark.x), COLUMNS)]
    return Table(["panel"] * several + [corner, *heading], rows, "" if whole else note)


def _series(panel: Panel) -> Iterator[Series]:
    """Names, where an axis has them, are the places."""
    for mark in panel.marks:
        name = getattr(mark, "name", "")
        match mark:
            case Line() | Points() if panel.y_names:
                _, places = _named(panel, mark.x, mark.y)
                yield Series(panel.title, name or panel.x_title, panel.y_title, places, mark.x)
            case Line() | Points():
                places, _ = _named(panel, mark.x, mark.y)
                yield Series(panel.title, name or panel.y_title, panel.x_title, places, mark.y)
            case Band():
                places, _ = _named(panel, mark.x, mark.low)
                for end, values in (("lower end", mark.low), ("upper end", mark.high)):
                    whole = ", ".join(part for part in (name, end) if part)
                    yield Series(panel.title, whole, panel.x_title, places, values)
            case Arrows():
                places = [f"({told(x)}, {told(y)})" for x, y in zip(mark.x, mark.y, strict=True)]
                for end, values in (("to x", mark.to_x), ("to y", mark.to_y)):
                    yield Series(panel.title, f"{name} {end}".strip(), "from", places, values)
            case Heat():
                x, y = _named(panel, mark.x, mark.y)
                for row, values in zip(y, mark.z, strict=True):
                    yield Series(panel.title, row, panel.x_title, x, values)
            case Rule():
                pass


def _side_by_side(series: list[Series]) -> Table:
    places = series[0].places
    names = [_whole(one, series) for one in series]
    if len(series) < COLUMNS:
        rows = picked(len(places), ROWS)
        made = [[places[r], *(told(one.values[r]) for one in series)] for r in rows]
        heading = [series[0].at, *names]
    else:
        rows = picked(len(places), COLUMNS)
        made = [
            [name, *(told(one.values[r]) for r in rows)]
            for name, one in zip(names, series, strict=True)
        ]
        heading = [series[0].at, *(places[r] for r in rows)]
    left_out = len(rows) < len(places)
    return Table(heading, made, f"Picked evenly from {len(places)} places." if left_out else "")


def _point_by_point(series: list[Series]) -> Table:
    deep = max(3, min(ROWS, MOST // len(series)))
    rows = [
        [_whole(one, series), one.places[n], told(one.values[n])]
        for one in series
        for n in picked(len(one.places), deep)
    ]
    at = " or ".join(dict.fromkeys(one.at for one in series if one.at))
    left_out = any(len(one.places) > deep for one in series)
    note = f"At most {deep} points of each, picked evenly." if left_out else ""
    return Table(["", at, "value"], rows, note)


def _whole(one: Series, series: list[Series]) -> str:
    """The name of a series, with that of its panel where there are several."""
    several = len({other.panel for other in series}) > 1
    return ": ".join(part for part in (one.panel if several else "", one.name) if part)


def _named(panel: Panel, x: Values, y: Values) -> tuple[list[str], list[str]]:
    def names(values: Values, given: Sequence[str]) -> list[str]:
        return [given[int(v)] if given and v is not None else told(v) for v in values]

    return names(x, panel.x_names), names(y, panel.y_names)
