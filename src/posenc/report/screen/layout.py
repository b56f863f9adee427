"""Place the panels of a figure for plotly, its titles, rules, palettes and legend."""

from collections.abc import Sequence
from html import escape
from math import ceil, log10
from typing import Any

from posenc.models.files.errors import printable
from posenc.report.drawing.figure import GREY, Figure, Heat, Line, Panel, Rule
from posenc.report.drawing.panel_layout import (
    BAR,
    LETTER,
    LINE,
    PanelLayout,
    decades,
    legend_names,
    one_palette,
)

SIGNED = [  # transparent at 0
    [0, "rgba(31, 131, 196, 1)"],
    [0.4999, "rgba(31, 131, 196, 0)"],
    [0.5001, "rgba(213, 94, 0, 0)"],
    [1, "rgba(213, 94, 0, 1)"],
]
NOTHING = "rgba(0, 0, 0, 0)"
WIDE, NARROW = 1100, 340  # pixels that a page has for a figure


def wide(figure: Figure) -> dict[str, Any]:
    """The layout on a page, all columns side by side."""
    return _layout(figure, figure.columns, WIDE)


def narrow(figure: Figure) -> dict[str, Any]:
    """The layout on a telephone: one column, or two of many small panels."""
    several = len(figure.panels) > 6 and not any(
        isinstance(mark, Heat) and mark.bar for panel in figure.panels for mark in panel.marks
    )
    return _layout(figure, min(figure.columns, 2 if several else 1), NARROW)


def nth(name: str, n: int) -> str:
    """The name of the n-th axis in plotly: x, x2, x3, …"""
    return f"{name}{n + 1}" if n else name


def safe(text: str) -> str:
    """Escape what plotly would take for markup or for a place to fill in."""
    return escape(printable(text, 200), quote=False).replace("%{", "%&#123;")


def _layout(figure: Figure, columns: int, width: int) -> dict[str, Any]:
    """Place the parts of a figure that depend on its width.

    Plotly counts domains as shares of the plot area, which is the figure without its margins, from
    the lower left corner: `inside` pixels high, `room` pixels wide.
    """
    at = PanelLayout(figure, columns, width)
    legend = (
        LINE * 1.4 * ceil(sum(len(name) * LETTER + 50 for name in legend_names(figure)) / width)
    )
    inside = at.rows * at.row + (at.rows - 1) * at.between  # all rows, and what is between them
    above, below = at.head + legend + 6, at.under
    shared, heats = one_palette(figure), 0
    layout: dict[str, Any] = {
        "height": round(above + inside + below),
        "margin": {"l": 10, "r": _right(figure, at), "t": round(above), "b": round(below)},
        "legend": {"orientation": "h", "x": 0, "y": 1, "yref": "container", "yanchor": "top"},
        "showlegend": legend > 0,
        "template": {},
        "paper_bgcolor": NOTHING,
        "plot_bgcolor": NOTHING,
        "shapes": [],
        "annotations": [],
    }
    for n, panel in enumerate(figure.panels):
        # panel n is in column n % columns, counted from the left, and row n // columns from the top
        left = (n % columns) * (at.column + at.gap) / at.room
        top = 1 - (n // columns) * (at.row + at.between) / inside
        x, y = (left, left + at.column / at.room), (max(0, top - at.row / inside), top)
        layout[nth("xaxis", n)] = _x_axis(panel, n, at) | {"domain": _within(*x)}
        layout[nth("yaxis", n)] = _y_axis(panel, n, at) | {"domain": _within(*y)}
        layout["annotations"] += [_title(at.title(n), (x[0] + x[1]) / 2, y[1])]
        for rule in [mark for mark in panel.marks if isinstance(mark, Rule)]:
            layout["shapes"].append(_rule(rule, n))
            layout["annotations"].append(_rule_name(rule, panel, n))
        for heat in [mark for mark in panel.marks if isinstance(mark, Heat)]:
            # one bar for all panels, centred beside them; else a bar at the edge of each panel
            high, middle = (1, 0.5) if shared else (at.row / inside, (y[0] + y[1]) / 2)
            place = {"x": 1 if shared else x[1], "y": middle, "len": min(1, high)}
            layout[nth("coloraxis", 0 if shared else heats)] = _colours(heat, place)
            heats += 1
    return layout


def _x_axis(panel: Panel, n: int, at: PanelLayout) -> dict[str, Any]:
    axis = _axis(
        panel.x_log, panel.x_range, panel.x_names, panel.x_ticks, at.column, decades(panel, "x")
    )
    axis["title"] = {"text": "<br>".join(map(safe, at.x_title(n))), "standoff": 6}
    if panel.x_names:
        axis |= {"tickangle": -90, "showticklabels": at.x_names(n)}
    return axis | {"anchor": nth("y", n), "constrain": "domain"} | _grid(panel, panel.x_names)


def _y_axis(panel: Panel, n: int, at: PanelLayout) -> dict[str, Any]:
    axis = _axis(
        panel.y_log, panel.y_range, panel.y_names, panel.y_ticks, at.row, decades(panel, "y")
    )
    axis["title"] = {"text": safe(at.y_title(n)), "standoff": 6}
    if panel.y_names:
        axis |= {"showticklabels": at.y_names(n)}
    if panel.y_down:
        axis |= {"range": axis["range"][::-1]} if "range" in axis else {"autorange": "reversed"}
    if panel.square:
        axis |= {"scaleanchor": nth("x", n), "constrain": "domain"}
    automargin = at.beside(n) is None
    return axis | {"anchor": nth("x", n), "automargin": automargin} | _grid(panel, panel.y_names)


def _axis(
    log: bool,
    span: tuple[float, float] | None,
    named: Sequence[str],
    ticks: Sequence[float],
    room: float,
    decades: float,
) -> dict[str, Any]:
    axis: dict[str, Any] = {"zeroline": False, "type": "log" if log else "linear"}
    if log:
        axis |= {"exponentformat": "power"} | ({"dtick": 1} if decades > 1.5 else {})
    if named:
        every = ceil(len(named) * LINE / room)
        shown = range(0, len(named), every)
        axis |= {"tickvals": list(shown), "ticktext": [_lines(named[n]) for n in shown]}
        span = span or (-0.5, len(named) - 0.5)
    if ticks:
        axis["tickvals"] = list(ticks)
    if span:
        axis["range"] = [log10(v) for v in span] if log else list(span)
    return axis


def _lines(name: str) -> str:
    return "<br>".join(map(safe, name.split("\n")))


def _title(lines: list[str], x: float, y: float) -> dict[str, Any]:
    return {
        "text": "<br>".join(map(safe, lines)),
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
        **{f"{rule.axis}ref": nth(rule.axis, n), f"{across}ref": f"{nth(across, n)} domain"},
        **{f"{rule.axis}0": rule.at, f"{rule.axis}1": rule.at, f"{across}0": 0, f"{across}1": 1},
    }


def _rule_name(rule: Rule, panel: Panel, n: int) -> dict[str, Any]:
    """The name of a rule, at the end of its line."""
    log = panel.x_log if rule.axis == "x" else panel.y_log
    across = "y" if rule.axis == "x" else "x"
    upright = rule.axis == "x"
    return {
        "textangle": -90 if upright else 0,
        "xanchor": "right" if upright else "left",
        "yanchor": "top" if upright else "bottom",
        "text": safe(rule.name),
        "font": {"size": 11},
        "showarrow": False,
        rule.axis: log10(rule.at) if log else rule.at,
        f"{rule.axis}ref": nth(rule.axis, n),
        across: 1 if upright else 0,
        f"{across}ref": f"{nth(across, n)} domain",
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
            "title": {"text": safe(heat.unit), "side": "right"},
        },
    }


def _right(figure: Figure, at: PanelLayout) -> int:
    """Pixels of the right margin, for colour bars or for names at the ends of lines."""
    direct = [
        len(mark.name)
        for panel in figure.panels
        for mark in panel.marks
        if isinstance(mark, Line) and mark.direct
    ]
    bar = BAR if any(heat.bar for heat in at.heats) else 0
    return round(15 + max(bar, LETTER * max(direct, default=0)))


def _grid(panel: Panel, names: Sequence[str]) -> dict[str, Any]:
    """The grid of an axis; a bare one has its names alone."""
    grid = not panel.bare and not any(isinstance(mark, Heat) for mark in panel.marks)
    return {"showgrid": grid} | ({"showticklabels": False} if panel.bare and not names else {})


def _within(low: float, high: float) -> list[float]:
    return [max(0.0, low), min(1.0, high)]
