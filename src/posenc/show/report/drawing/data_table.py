"""List the numbers behind a figure as a table, for readers who do not see the figure.

Curves over the same places are columns side by side; other marks have one row for each point. If
there are many places or cells, the table has an evenly spaced sample with both ends, and its note
has their number.
"""

from posenc.show.report.drawing.figure import Figure, FigureNumbers, Panel, Series, format_number
from posenc.show.report.drawing.marks import Heat

ROWS, COLUMNS = 24, 12
MOST_ROWS = 240  # rows of all panels together


def data_table(figure: Figure) -> FigureNumbers:
    """Return the numbers of all panels as a table of text. Long tables are sampled.

    In a panel with a heat map the other marks only point at places, so they are not listed.
    """
    if figure.listed is not None:
        return figure.listed
    notes = [f"{mark.name}." for mark in figure.marks if mark.guide and mark.name]
    heats = [(p, mark) for p in figure.panels for mark in p.marks if isinstance(mark, Heat)]
    if len(heats) == len(figure.panels) and len({tuple(mark.x) for _, mark in heats}) == 1:
        cells = _heat_table(heats)
    else:
        series = [one for p in figure.panels for mark in p.marks for one in mark.series(p)]
        same = all(line.places == series[0].places for line in series)
        cells = _side_by_side(series) if same else _point_by_point(series)
    return FigureNumbers(
        cells.heading, cells.rows, " ".join([cells.note, *dict.fromkeys(notes)]).strip()
    )


def evenly_spaced(count: int, wanted: int) -> list[int]:
    """Return evenly spaced indices from 0 to count − 1, both ends included.

    >>> evenly_spaced(9, 3)
    [0, 4, 8]
    """
    return sorted(
        {round(n * (count - 1) / (wanted - 1)) for n in range(wanted)} if count else set()
    )


def _heat_table(heats: list[tuple[Panel, Heat]]) -> FigureNumbers:
    """List the cells of heat maps as table rows, one panel after the other."""
    several = len(heats) > 1
    deep = max(6, min(ROWS, MOST_ROWS // len(heats)))
    rows = []
    for panel, mark in heats:
        columns, y = evenly_spaced(len(mark.x), COLUMNS), panel.texts("y", mark.y)
        rows += [
            [panel.title] * several + [y[r]] + [format_number(mark.z[r][c]) for c in columns]
            for r in evenly_spaced(len(mark.y), deep)
        ]
    first, mark = heats[0]
    x = first.texts("x", mark.x)
    corner = " \\ ".join(title for title in (first.y_title, first.x_title) if title)
    complete = len(mark.y) <= deep and len(mark.x) <= COLUMNS
    note = f"Picked evenly from {len(mark.y)} rows and {len(mark.x)} columns."
    heading = [x[c] for c in evenly_spaced(len(mark.x), COLUMNS)]
    return FigureNumbers(["panel"] * several + [corner, *heading], rows, "" if complete else note)


def _side_by_side(series: list[Series]) -> FigureNumbers:
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
    return FigureNumbers(
        heading, cells, f"Picked evenly from {len(places)} places." if left_out else ""
    )


def _point_by_point(series: list[Series]) -> FigureNumbers:
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
    return FigureNumbers(["", at, "value"], rows, " ".join(notes))


def _full_name(curve: Series, series: list[Series]) -> str:
    """Return the name of a series, with the name of its panel if there are several."""
    several = len({other.panel for other in series}) > 1
    return ": ".join(part for part in (curve.panel if several else "", curve.name) if part)
