"""Figures, one function each: from the data object to plotly.

Colours of lines are Okabe and Ito's, readable with any colour vision; background and text are left
to the page, which knows whether it is dark.
"""

from math import ceil

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from posenc.analysis.comparison import Comparison, Measured
from posenc.models.inspection import Turning

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#888888"
BAND = "rgba(0, 114, 178, 0.22)"
COLUMNS = 3


def curves(result: Comparison) -> go.Figure:
    """Score against distance, one panel an encoding, NoPE dashed where it takes part."""
    figure = _panels(result.encodings, row_height=170)
    plain = next((m.curve for m in result.encodings if m.slug == "nope"), None)
    others = slice(1, None)  # a token is most like itself, which would flatten the rest
    for n, measured in enumerate(result.encodings):
        at, curve = _place(n), measured.curve
        hidden = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        figure.add_scatter(x=curve.distance[others], y=_short(curve.high[others]), **hidden, **at)
        figure.add_scatter(
            x=curve.distance[others],
            y=_short(curve.low[others]),
            fill="tonexty",
            fillcolor=BAND,
            **hidden,
            **at,
        )
        if plain and measured.slug != "nope":
            dashed = {"color": GREY, "dash": "dash", "width": 1}
            figure.add_scatter(
                x=plain.distance[others],
                y=_short(plain.mean[others]),
                line=dashed,
                hoverinfo="skip",
                **at,
            )
        figure.add_scatter(
            x=curve.distance[others],
            y=_short(curve.mean[others]),
            line={"color": BLUE, "width": 2},
            hovertemplate="%{x} tokens back: %{y:.3g}<extra></extra>",
            **at,
        )
    figure.update_traces(showlegend=False)
    return figure


def rows(result: Comparison) -> go.Figure | None:
    """What position p makes of a vector: 64 positions, channels from the top, centred at 0."""
    shown = [measured for measured in result.encodings if measured.rows]
    if not shown:
        return None
    figure = _panels(shown, row_height=210)
    for n, measured in enumerate(shown):
        values = measured.rows or []
        most = max((abs(v) for row in values for v in row), default=1.0) or 1.0
        figure.add_heatmap(
            z=[list(channel) for channel in zip(*values, strict=True)],
            zmin=-most,
            zmax=most,
            colorscale="RdBu",
            showscale=False,
            hovertemplate="position %{x}, channel %{y}: %{z:.3f}<extra></extra>",
            **_place(n),
        )
    figure.update_yaxes(autorange="reversed")
    return figure


def order(result: Comparison) -> go.Figure:
    """The shuffle and the duplicate test, without and with a causal mask."""
    tested = any(measured.duplicate for measured in result.encodings)
    titles = ["a shuffled sentence", "two occurrences of a word"][: 1 + tested]
    figure = make_subplots(1, len(titles), subplot_titles=titles, shared_yaxes=True)
    names = [measured.name for measured in result.encodings]
    tests = [[m.shuffle for m in result.encodings], [m.duplicate for m in result.encodings]]
    for column, found in enumerate(tests[: len(titles)], start=1):
        for label, colour, symbol in (("plain", BLUE, "circle"), ("causal", ORANGE, "diamond")):
            figure.add_scatter(
                x=[100 * getattr(one, label) if one else None for one in found],
                y=names,
                name={"plain": "no mask", "causal": "causal mask"}[label],
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 9},
                hovertemplate="%{y}: %{x:.3g} %<extra></extra>",
                showlegend=column == 1,
                row=1,
                col=column,
            )
    figure.update_xaxes(title_text="change, % of what attention computes", rangemode="tozero")
    return _list(figure, len(names))


def costs(result: Comparison) -> go.Figure:
    """Time and memory as multiples of NoPE."""
    names = [measured.name for measured in result.encodings]
    figure = go.Figure()
    for key, name, colour, symbol in (
        ("forward", "time, forward", BLUE, "circle"),
        ("training", "time, training", ORANGE, "diamond"),
        ("training_memory", "memory, training", GREEN, "square"),
    ):
        figure.add_scatter(
            x=[measured.cost_ratio[key] for measured in result.encodings],
            y=names,
            name=name,
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 9},
            hovertemplate="%{y}: %{x:.2f} × NoPE<extra></extra>",
        )
    figure.update_xaxes(title_text="× NoPE", type="log", tickvals=[1, 1.5, 2, 3, 5, 10, 20, 50])
    return _list(figure, len(names))


def bands(turning: Turning) -> go.Figure:
    """Wavelength of each pair, as trained and as it turns now, against the trained length."""
    figure = go.Figure()
    pairs = list(range(len(turning.pairs)))
    now = [pair.wavelength for pair in turning.pairs]
    before = [w / pair.slower for w, pair in zip(now, turning.pairs, strict=True)]
    if before != now:
        figure.add_scatter(
            x=pairs,
            y=[w if w < float("inf") else None for w in before],
            name="as trained",
            line={"color": GREY, "dash": "dash", "width": 2},
            hovertemplate="pair %{x}, as trained: %{y:,.4g} tokens<extra></extra>",
        )
    figure.add_scatter(
        x=pairs,
        y=[w if w < float("inf") else None for w in now],
        name="now" if before != now else "wavelength",
        mode="lines+markers",
        line={"color": BLUE, "width": 2},
        marker={"size": 5},
        hovertemplate="pair %{x}: %{y:,.4g} tokens<extra></extra>",
    )
    for tokens, name in ((turning.trained, "trained"), (turning.span, "used")):
        if tokens and not (name == "used" and tokens == turning.trained):
            figure.add_scatter(
                x=[pairs[0], pairs[-1]],
                y=[tokens, tokens],
                name=f"{name} over {tokens:,} tokens",
                mode="lines",
                line={"color": ORANGE if name == "trained" else GREEN, "dash": "dot", "width": 2},
                hoverinfo="skip",
            )
    figure.update_xaxes(title_text="pair of channels, fastest first")
    figure.update_yaxes(title_text="wavelength, tokens", type="log", automargin=True)
    figure.update_layout(
        height=360,
        margin={"l": 10, "r": 15, "t": 50, "b": 45},
        legend={"orientation": "h", "y": 1, "yref": "container", "yanchor": "top", "x": 0},
    )
    return figure


def _panels(shown: list[Measured], row_height: int) -> go.Figure:
    many = ceil(len(shown) / COLUMNS)
    figure = make_subplots(
        many,
        COLUMNS,
        subplot_titles=[measured.name for measured in shown],
        horizontal_spacing=0.07,
        vertical_spacing=min(0.3, 52 / (many * row_height)),
    )
    figure.update_layout(height=many * row_height + 60, margin={"l": 45, "r": 15, "t": 40, "b": 30})
    return figure


def _place(n: int) -> dict[str, int]:
    return {"row": n // COLUMNS + 1, "col": n % COLUMNS + 1}


def _list(figure: go.Figure, many: int) -> go.Figure:
    """Names down the side, the first on top."""
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(
        height=27 * many + 130,
        margin={"l": 10, "r": 15, "t": 80, "b": 50},
        legend={"orientation": "h", "y": 1, "yref": "container", "yanchor": "top", "x": 0},
    )
    return figure


def _short(values: list[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
