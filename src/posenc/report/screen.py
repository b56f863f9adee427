"""Figures for the screen, by plotly.

Paper and plot are transparent and the ink is left to the page, which knows whether it is dark.
What depends on the width of the page is in `layout`; `layout.meta["narrow"]` is the same for a
telephone.
"""

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, log10
from typing import Any

import plotly.graph_objects as go

from posenc.models.errors import printable
from posenc.report.drawing import (
    GREY,
    Arrows,
    Band,
    Figure,
    Heat,
    Line,
    Mark,
    Panel,
    Points,
    Rule,
    short,
)
from posenc.report.places import BAR, LETTER, LINE, Places, decades, names

SIGNED = [  # 0 lets the paper through
    [0, "rgba(31, 131, 196, 1)"],
    [0.4999, "rgba(31, 131, 196, 0)"],
    [0.5001, "rgba(213, 94, 0, 0)"],
    [1, "rgba(213, 94, 0, 1)"],
]
SIDES = {"above": "top center", "right above": "top right", "left below": "bottom left"}
WIDE, NARROW = 1100, 340  # pixels that a page has for a figure


def plotly(figure: Figure) -> go.Figure:
    """Every text is escaped. Nothing plays by itself: frames wait for a slider of the page."""
    traces = [trace for n, panel in enumerate(figure.panels) for trace in _panel(panel, n, figure)]
    named: set[str] = set()
    for trace in traces:
        name = trace.get("name", "")
        trace |= {"legendgroup": name, "showlegend": bool(name) and name not in named}
        named.add(name)
    layout = _layout(figure, figure.columns, WIDE)
    states = [frame.panels for frame in figure.frames]
    layout["meta"] = {
        "narrow": _layout(figure, _narrow(figure), NARROW),
        "start": states.index(figure.panels) if states else None,
    }
    return go.Figure({"data": traces, "layout": layout, "frames": list(_frames(figure))})


def _panel(panel: Panel, n: int, figure: Figure) -> Iterator[dict[str, Any]]:
    axes = {"xaxis": _nth("x", n), "yaxis": _nth("y", n)}
    heats = sum(isinstance(m, Heat) for before in figure.panels[:n] for m in before.marks)
    shared = Places(figure, 1, WIDE).shared
    for mark in panel.marks:
        if isinstance(mark, Heat):
            yield (
                _drawn(mark, panel)
                | axes
                | {"coloraxis": _nth("coloraxis", 0 if shared else heats)}
            )
            heats += 1
        elif not isinstance(mark, Rule):
            yield _drawn(mark, panel) | axes
        if isinstance(mark, Arrows) and mark.labels:
            yield _heads(mark) | axes


def _drawn(mark: Mark, panel: Panel) -> dict[str, Any]:
    match mark:
        case Line():
            parts = ["lines", *["markers"] * bool(mark.marker), *["text"] * mark.direct]
            return {
                "type": "scatter",
                "x": short(mark.x),
                "y": short(mark.y),
                "mode": "+".join(parts),
                "line": {"color": mark.colour, "dash": mark.dash, "width": mark.width},
                "marker": {
                    "symbol": _symbol(mark.marker),
                    "size": 6,
                    "maxdisplayed": _marked(mark),
                },
                "hovertemplate": _hover(mark.name, panel),
            } | _written(mark)
        case Band():
            kept = [
                (x, low, high)
                for x, low, high in zip(*map(short, (mark.x, mark.low, mark.high)), strict=True)
                if None not in (x, low, high)
            ]
            x, low, high = map(list, zip(*kept, strict=True)) if kept else ([], [], [])
            return {
                "type": "scatter",
                "x": x + x[::-1],
                "y": low + high[::-1],
                "fill": "toself",
                "fillcolor": _faint(mark.colour),
                "mode": "lines",
                "line": {"width": 0, "color": _faint(mark.colour)},
                "hoverinfo": "skip",
                "name": _safe(mark.name),
            }
        case Points():
            return {
                "type": "scatter",
                "x": short(mark.x),
                "y": short(mark.y),
                "mode": "markers+text" if mark.labels else "markers",
                "text": [_safe(label) for label in mark.labels] or None,
                "textposition": SIDES[mark.side],
                "marker": {
                    "color": mark.colour,
                    "symbol": _symbol(mark.marker),
                    "size": mark.size,
                },
                "hovertemplate": _hover(mark.name, panel),
                "name": _safe(mark.name),
                "cliponaxis": False,
            }
        case Arrows():
            ends = zip(mark.x, mark.to_x, strict=True), zip(mark.y, mark.to_y, strict=True)
            x, y = ([v for a, b in pairs for v in (a, b, None)] for pairs in ends)
            return {
                "type": "scatter",
                "x": short(x),
                "y": short(y),
                "mode": "lines+markers",
                "line": {"color": mark.colour, "dash": mark.dash, "width": 2},
                "marker": {
                    "symbol": "arrow",
                    "angleref": "previous",
                    "size": [0, 13, 0] * len(mark.x),
                    "line": {"width": 0},
                    "color": mark.colour,
                },
                "hovertemplate": _hover(mark.name, panel),
                "name": _safe(mark.name),
            }
        case Heat():
            return {
                "type": "heatmap",
                "z": [short(row) for row in mark.z],
                "x": list(mark.x),
                "y": list(mark.y),
                "hovertemplate": _hover("", panel, mark.unit or "value"),
                "hoverongaps": False,
            }
        case Rule():
            raise TypeError("a rule belongs to the layout")


def _heads(mark: Arrows) -> dict[str, Any]:
    """Labels beyond the heads of arrows."""
    return {
        "type": "scatter",
        "x": short([x + 1.06 * (to - x) for x, to in zip(mark.x, mark.to_x, strict=True)]),
        "y": short([y + 1.06 * (to - y) for y, to in zip(mark.y, mark.to_y, strict=True)]),
        "mode": "text",
        "text": [_safe(label) for label in mark.labels],
        "textposition": [f"{'top' if y >= 0 else 'bottom'} center" for y in mark.to_y],
        "hoverinfo": "skip",
        "cliponaxis": False,
    }


def _written(mark: Line) -> dict[str, Any]:
    """The name: at the end of the line, or in the legend."""
    if not mark.direct:
        return {"name": _safe(mark.name)}
    last = max(n for n, (x, y) in enumerate(zip(mark.x, mark.y, strict=True)) if None not in (x, y))
    text = [_safe(mark.name) if n == last else "" for n in range(len(mark.x))]
    return {"text": text, "textposition": "middle right", "cliponaxis": False}


def _layout(figure: Figure, columns: int, width: int) -> dict[str, Any]:
    """Everything whose place depends on how wide the figure may be."""
    at = Places(figure, columns, width)
    legend = LINE * 1.4 * ceil(sum(len(name) * LETTER + 50 for name in names(figure)) / width)
    inside = at.rows * at.row + (at.rows - 1) * at.between
    above, below = at.head + legend + 6, at.under
    layout: dict[str, Any] = {
        "height": round(above + inside + below),
        "margin": {"l": 10, "r": _right(figure, at), "t": round(above), "b": round(below)},
        "legend": {"orientation": "h", "x": 0, "y": 1, "yref": "container", "yanchor": "top"},
        "showlegend": legend > 0,
        "shapes": [],
        "annotations": [],
    }
    for n, panel in enumerate(figure.panels):
        left = (n % columns) * (at.column + at.gap) / (width - 60 - BAR * bool(at.heats))
        wide = at.column / (width - 60 - BAR * bool(at.heats))
        top = 1 - (n // columns) * (at.row + at.between) / inside
        x, y = (left, left + wide), (max(0, top - at.row / inside), top)
        layout[_nth("xaxis", n)] = _x_axis(panel, n, at) | {"domain": _within(*x)}
        layout[_nth("yaxis", n)] = _y_axis(panel, n, at) | {"domain": _within(*y)}
        layout["annotations"] += [_title(at.title(n), (x[0] + x[1]) / 2, y[1])]
        for rule in [mark for mark in panel.marks if isinstance(mark, Rule)]:
            layout["shapes"].append(_rule(rule, n))
            layout["annotations"].append(_rule_name(rule, panel, n))
        for heat in [mark for mark in panel.marks if isinstance(mark, Heat)]:
            k = 0 if at.shared else at.heats.index(heat)
            high, middle = (1, 0.5) if at.shared else (at.row / inside, (y[0] + y[1]) / 2)
            place = {"x": 1 if at.shared else x[1], "y": middle, "len": min(1, high)}
            layout[_nth("coloraxis", k)] = _colours(heat, place)
    return layout


def _x_axis(panel: Panel, n: int, at: Places) -> dict[str, Any]:
    made = _axis(
        panel.x_log, panel.x_range, panel.x_names, panel.x_ticks, at.column, decades(panel, "x")
    )
    made["title"] = {"text": "<br>".join(map(_safe, at.x_title(n))), "standoff": 6}
    if panel.x_names:
        made |= {"tickangle": -90, "showticklabels": at.x_names(n)}
    return made | {"anchor": _nth("y", n), "constrain": "domain", "showgrid": not _only_heat(panel)}


def _y_axis(panel: Panel, n: int, at: Places) -> dict[str, Any]:
    made = _axis(
        panel.y_log, panel.y_range, panel.y_names, panel.y_ticks, at.row, decades(panel, "y")
    )
    made["title"] = {"text": _safe(at.y_title(n)), "standoff": 6}
    if panel.y_names:
        made |= {"showticklabels": at.y_names(n)}
    if panel.y_down:
        made |= {"range": made["range"][::-1]} if "range" in made else {"autorange": "reversed"}
    if panel.square:
        made |= {"scaleanchor": _nth("x", n), "constrain": "domain"}
    automargin = at.beside(n) is None
    return made | {
        "anchor": _nth("x", n),
        "automargin": automargin,
        "showgrid": not _only_heat(panel),
    }


def _axis(
    log: bool,
    span: tuple[float, float] | None,
    named: Sequence[str],
    ticks: Sequence[float],
    room: float,
    decades: float,
) -> dict[str, Any]:
    made: dict[str, Any] = {"zeroline": False, "type": "log" if log else "linear"}
    if log:
        made |= {"exponentformat": "power"} | ({"dtick": 1} if decades > 1.5 else {})
    if named:
        every = ceil(len(named) * LINE / room)
        kept = range(0, len(named), every)
        made |= {"tickvals": list(kept), "ticktext": [_safe(named[n]) for n in kept]}
        span = span or (-0.5, len(named) - 0.5)
    if ticks:
        made["tickvals"] = list(ticks)
    if span:
        made["range"] = [log10(v) for v in span] if log else list(span)
    return made


def _title(lines: list[str], x: float, y: float) -> dict[str, Any]:
    return {
        "text": "<br>".join(map(_safe, lines)),
        "font": {"size": 13},
        "showarrow": False,
        **{"x": x, "xref": "paper", "xanchor": "center"},
        **{"y": y, "yref": "paper", "yanchor": "bottom"},
    }


def _rule(rule: Rule, n: int) -> dict[str, Any]:
    across = "y" if rule.axis == "x" else "x"
    return {
        "type": "line",
        "line": {"color": GREY, "dash": rule.dash, "width": 1.5},
        **{f"{rule.axis}ref": _nth(rule.axis, n), f"{across}ref": f"{_nth(across, n)} domain"},
        **{f"{rule.axis}0": rule.at, f"{rule.axis}1": rule.at, f"{across}0": 0, f"{across}1": 1},
    }


def _rule_name(rule: Rule, panel: Panel, n: int) -> dict[str, Any]:
    """Beside its line, at the end of it."""
    log = panel.x_log if rule.axis == "x" else panel.y_log
    across = "y" if rule.axis == "x" else "x"
    upright = rule.axis == "x"
    return {
        "textangle": -90 if upright else 0,
        "xanchor": "right" if upright else "left",
        "yanchor": "top" if upright else "bottom",
        "text": _safe(rule.name),
        "font": {"size": 11},
        "showarrow": False,
        rule.axis: log10(rule.at) if log else rule.at,
        f"{rule.axis}ref": _nth(rule.axis, n),
        across: 1 if upright else 0,
        f"{across}ref": f"{_nth(across, n)} domain",
    }


def _colours(heat: Heat, place: dict[str, float]) -> dict[str, Any]:
    low, high = heat.span
    return {
        "colorscale": SIGNED if heat.signed else "Viridis",
        "cmin": low,
        "cmax": high,
        "showscale": heat.bar,
        "colorbar": place
        | {
            "thickness": 10,
            "outlinewidth": 0,
            "title": {"text": _safe(heat.unit), "side": "right"},
        },
    }


def _right(figure: Figure, at: Places) -> int:
    """Room for colour bars, or for the names at the ends of lines."""
    direct = [
        len(mark.name)
        for panel in figure.panels
        for mark in panel.marks
        if isinstance(mark, Line) and mark.direct
    ]
    bar = BAR if any(heat.bar for heat in at.heats) else 0
    return round(15 + max(bar, LETTER * max(direct, default=0)))


def _narrow(figure: Figure) -> int:
    """Columns on a telephone."""
    several = len(figure.panels) > 6 and not any(
        isinstance(mark, Heat) and mark.bar for panel in figure.panels for mark in panel.marks
    )
    return min(figure.columns, 2 if several else 1)


def _frames(figure: Figure) -> Iterator[dict[str, Any]]:
    """Only what changes, trace by trace."""
    first = [trace for n, panel in enumerate(figure.panels) for trace in _panel(panel, n, figure)]
    for frame in figure.frames:
        now = [trace for n, panel in enumerate(frame.panels) for trace in _panel(panel, n, figure)]
        changed = [
            {key: value for key, value in trace.items() if key == "type" or value != was[key]}
            for trace, was in zip(now, first, strict=True)
        ]
        places = [n for n, trace in enumerate(changed) if len(trace) > 1]
        data = [changed[n] for n in places]
        yield {"name": _safe(frame.name), "data": data, "traces": places}


def _hover(name: str, panel: Panel, value: str = "") -> str:
    lines = [
        _safe(name),
        f"{_safe(panel.x_title or 'x')}: %{{x}}",
        f"{_safe(panel.y_title or 'y')}: %{{y}}",
        f"{_safe(value)}: %{{z:.4g}}" if value else "",
    ]
    return "<br>".join(line for line in lines if line) + "<extra></extra>"


def _marked(mark: Line) -> int:
    """How many points of a line get a marker; 0: all."""
    return 0 if len(mark.x) <= 40 else 12


def _symbol(marker: str) -> str:
    return {"triangle": "triangle-up", "dash": "line-ew-open", "": "circle"}.get(marker, marker)


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[n : n + 2], 16) for n in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.22)"


def _only_heat(panel: Panel) -> bool:
    return any(isinstance(mark, Heat) for mark in panel.marks)


def _within(low: float, high: float) -> list[float]:
    return [max(0.0, low), min(1.0, high)]


def _nth(name: str, n: int) -> str:
    """As plotly counts axes: x, x2, x3, …"""
    return f"{name}{n + 1}" if n else name


def _safe(text: str) -> str:
    """What plotly would take for markup or for a place to fill in is written out."""
    return escape(printable(text, 200), quote=False).replace("%{", "%&#123;")
