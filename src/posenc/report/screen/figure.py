"""Draw figures for the screen with plotly.

Backgrounds are transparent, and the page sets the colour of text, as it knows its theme. All that
depends on the width of the page is in `layout`; `layout.meta["narrow"]` holds it for a telephone.
"""

from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go

from posenc.report.drawing.figure import (
    Area,
    Arrows,
    Band,
    Figure,
    Heat,
    Line,
    Mark,
    Panel,
    Points,
    Rule,
    Stems,
    short,
)
from posenc.report.drawing.panel_layout import one_palette
from posenc.report.screen.layout import narrow, nth, safe, wide

SIDES = {
    "above": "top center",
    "right above": "top right",
    "left below": "bottom left",
    "right": "middle right",
    "middle": "middle center",
}


def plotly(figure: Figure) -> go.Figure:
    """Draw a figure. Every text is escaped; frames are not played but wait for a slider."""
    traces = [trace for n, panel in enumerate(figure.panels) for trace in _panel(panel, n, figure)]
    named: set[str] = set()
    for trace in traces:
        name = trace.get("name", "")
        trace |= {"legendgroup": name, "showlegend": bool(name) and name not in named}
        named.add(name)
    states = [frame.panels for frame in figure.frames]
    layout = wide(figure)
    layout["meta"] = {
        "narrow": narrow(figure),
        "start": states.index(figure.panels) if states else None,
    }
    return go.Figure({"data": traces, "layout": layout, "frames": list(_frames(figure))})


def _panel(panel: Panel, n: int, figure: Figure) -> Iterator[dict[str, Any]]:
    axes = {"xaxis": nth("x", n), "yaxis": nth("y", n)}
    heats = sum(isinstance(m, Heat) for before in figure.panels[:n] for m in before.marks)
    shared = one_palette(figure)
    for mark in panel.marks:
        if isinstance(mark, Heat):
            yield (
                _drawn(mark, panel) | axes | {"coloraxis": nth("coloraxis", 0 if shared else heats)}
            )
            heats += 1
        elif not isinstance(mark, Rule):
            yield _drawn(mark, panel) | axes
        if isinstance(mark, Arrows) and mark.labels:
            yield _heads(mark) | axes
        if isinstance(mark, Line) and mark.direct:
            yield _end(mark) | axes


def _drawn(mark: Mark, panel: Panel) -> dict[str, Any]:
    match mark:
        case Line():
            return {
                "type": "scatter",
                "x": short(mark.x),
                "y": short(mark.y),
                "mode": "lines+markers" if mark.marker else "lines",
                "line": {"color": mark.colour, "dash": mark.dash, "width": mark.width},
                "marker": {
                    "symbol": _symbol(mark.marker),
                    "size": 6,
                    "maxdisplayed": _marked(mark),
                },
                "hovertemplate": _hover(mark.name, panel),
                "name": "" if mark.direct else safe(mark.name),
            }
        case Stems():
            x, y = short(mark.x), short(mark.y)
            return {
                "type": "scatter",
                "x": [v for at in x for v in (at, at, None)],
                "y": [v for height in y for v in (0, height, None)],
                "mode": "lines+markers",
                "line": {"color": mark.colour, "width": 2},
                "marker": {
                    "symbol": _symbol(mark.marker),
                    "size": [0, 8, 0] * len(x),
                    "line": {"width": 0},
                    "opacity": 1,
                    "color": mark.colour,
                },
                "hovertemplate": _hover(mark.name, panel),
                "name": safe(mark.name),
            }
        case Area():
            colour = _faint(mark.colour) if mark.faint else mark.colour
            return {
                "type": "scatter",
                "x": short(mark.x),
                "y": short(mark.y),
                "fill": "toself",
                "fillcolor": colour,
                "mode": "lines",
                "line": {"width": 0, "color": colour},
                "hoverinfo": "skip",
                "name": safe(mark.name),
            }
        case Band():
            bounded = [
                (x, low, high)
                for x, low, high in zip(*map(short, (mark.x, mark.low, mark.high)), strict=True)
                if None not in (x, low, high)
            ]
            x, low, high = map(list, zip(*bounded, strict=True)) if bounded else ([], [], [])
            return {
                "type": "scatter",
                "x": x + x[::-1],
                "y": low + high[::-1],
                "fill": "toself",
                "fillcolor": _faint(mark.colour),
                "mode": "lines",
                "line": {"width": 0, "color": _faint(mark.colour)},
                "hoverinfo": "skip",
                "name": safe(mark.name),
            }
        case Points():
            return {
                "type": "scatter",
                "x": short(mark.x),
                "y": short(mark.y),
                "mode": "text" if not mark.marker else "markers+text" if mark.labels else "markers",
                "text": [safe(label) for label in mark.labels] or None,
                "textposition": SIDES[mark.side],
                "marker": {
                    "color": mark.colour,
                    "symbol": _symbol(mark.marker),
                    "size": mark.size,
                },
                "hovertemplate": _hover(mark.name, panel),
                "name": safe(mark.name),
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
                    "opacity": 1,
                    "color": mark.colour,
                },
                "hovertemplate": _hover(mark.name, panel),
                "name": safe(mark.name),
            }
        case Heat():
            return {
                "type": "heatmap",
                "z": [short(row) for row in mark.z],
                "x": list(mark.x),
                "y": list(mark.y),
                "hovertemplate": _hover("", panel, mark.unit or "value"),
                "hoverongaps": False,
            } | ({} if mark.digits is None else {"texttemplate": f"%{{z:.{mark.digits}f}}"})
        case Rule():
            raise TypeError("a rule belongs to the layout")


def _heads(mark: Arrows) -> dict[str, Any]:
    """Labels beyond the heads of arrows."""
    return {
        "type": "scatter",
        "x": short([x + 1.06 * (to - x) for x, to in zip(mark.x, mark.to_x, strict=True)]),
        "y": short([y + 1.06 * (to - y) for y, to in zip(mark.y, mark.to_y, strict=True)]),
        "mode": "text",
        "text": [safe(label) for label in mark.labels],
        "textposition": [f"{'top' if y >= 0 else 'bottom'} center" for y in mark.to_y],
        "hoverinfo": "skip",
        "cliponaxis": False,
    }


def _end(mark: Line) -> dict[str, Any]:
    """The name of a line, after its last point."""
    points = zip(short(mark.x), short(mark.y), strict=True)
    *_, (x, y) = [point for point in points if None not in point]
    return {
        "type": "scatter",
        "x": [x],
        "y": [y],
        "mode": "text",
        "text": [f" {safe(mark.name)}"],
        "textposition": "middle right",
        "hoverinfo": "skip",
        "cliponaxis": False,
    }


def _frames(figure: Figure) -> Iterator[dict[str, Any]]:
    """The trace properties that differ in any frame, for each frame.

    Frames can then be shown in any order: each sets all that another may have changed.
    """
    states = [
        [trace for n, panel in enumerate(frame.panels) for trace in _panel(panel, n, figure)]
        for frame in figure.frames
    ]
    # changing[n]: the properties of trace n that are not the same in all frames
    changing = {
        place: {key for key in traces[0] if any(trace[key] != traces[0][key] for trace in traces)}
        for place, traces in enumerate(zip(*states, strict=True))
    }
    places = [place for place, keys in changing.items() if keys]
    for frame, state in zip(figure.frames, states, strict=True):
        data = [{key: state[n][key] for key in {"type", *changing[n]}} for n in places]
        yield {"name": safe(frame.name), "data": data, "traces": places}


def _hover(name: str, panel: Panel, value: str = "") -> str:
    lines = [
        safe(name),
        f"{safe(panel.x_title or 'x')}: %{{x}}",
        f"{safe(panel.y_title or 'y')}: %{{y}}",
        f"{safe(value)}: %{{z:.4g}}" if value else "",
    ]
    return "<br>".join(line for line in lines if line) + "<extra></extra>"


def _marked(mark: Line) -> int:
    """Number of points of a line that get a marker; 0: all."""
    return 0 if len(mark.x) <= 40 else 12


def _symbol(marker: str) -> str:
    return {"triangle": "triangle-up", "dash": "line-ew-open", "": "circle"}.get(marker, marker)


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[n : n + 2], 16) for n in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.22)"
