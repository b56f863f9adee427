"""Figures of what the weights say, one function each: from the data object to plotly."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from posenc.models.weighing import Bands, Bias, Positions, Relative
from posenc.report.figures import BLUE, COLUMNS, GREEN, GREY, ORANGE

LINES = (BLUE, ORANGE, GREEN, GREY)
DASHES = ("solid", "dash", "dot", "dashdot")
MOST = 512  # points of a curve


def table(one: Positions) -> go.Figure | None:
    """Norms of a learned table's rows and how alike neighbours are; where training ended."""
    found = one.learned
    if found is None:
        return None
    figure = make_subplots(2, 1, shared_xaxes=True, vertical_spacing=0.08)
    every = -(-one.rows // MOST)
    for place, (name, values, first, colour) in enumerate(
        (("norm", found.norms, 0, BLUE), ("cosine to the row before", found.likeness, 1, ORANGE)),
        start=1,
    ):
        figure.add_scatter(
            x=list(range(first, one.rows, every)),
            y=_short(values[::every]),
            line={"color": colour, "width": 1.5},
            hovertemplate=f"row %{{x}}: {name} %{{y:.3g}}<extra></extra>",
            row=place,
            col=1,
        )
        figure.update_yaxes(title_text=name, row=place, col=1)
    for at, dash in ((found.trained if found.untrained else None, "solid"), (found.falls, "dot")):
        if at:
            figure.add_vline(x=at, line={"color": GREY, "dash": dash, "width": 1.5})
    figure.update_xaxes(title_text="row", row=2, col=1)
    return _laid_out(figure, 360)


def bias(one: Bias) -> go.Figure:
    """The bias of each head over the distance, in steps as it is."""
    figure = go.Figure()
    for number, values in enumerate(one.steps.heads):
        figure.add_scatter(
            x=one.steps.distance,
            y=_short(values),
            name=f"head {number}",
            mode="lines",
            line=_line(number),
            hovertemplate=f"head {number}, %{{x}} tokens back: %{{y:.3g}}<extra></extra>",
        )
    figure.update_xaxes(title_text="tokens that the key is behind the query")
    figure.update_yaxes(title_text="bias, logits")
    return _laid_out(figure, 360, legend=True)


def relative(found: list[Relative]) -> go.Figure | None:
    """The length of the vector of each distance, one panel a table."""
    if not found:
        return None
    many = -(-len(found) // COLUMNS)
    titles = [one.tensor[-40:] for one in found]
    figure = make_subplots(
        many, COLUMNS, subplot_titles=titles, vertical_spacing=min(0.3, 52 / (many * 170))
    )
    for n, one in enumerate(found):
        figure.add_scatter(
            x=one.vectors.distance,
            y=_short(one.vectors.norms),
            mode="lines+markers",
            line={"color": BLUE, "width": 2},
            hovertemplate="%{x} tokens back: length %{y:.3g}<extra></extra>",
            row=n // COLUMNS + 1,
            col=n % COLUMNS + 1,
        )
    figure.update_annotations(font_size=10)
    return _laid_out(figure, many * 170 + 60)


def bands(found: list[Bands]) -> go.Figure | None:
    """How strong queries and keys are in each pair, a colour for layers that turn alike."""
    if not found:
        return None
    figure = go.Figure()
    for n, one in enumerate(found):
        layers = f"layers {one.layers[0]} … {one.layers[-1]}"
        for name, values, dash in (("queries", one.queries, "solid"), ("keys", one.keys, "dash")):
            figure.add_scatter(
                x=list(range(len(values))),
                y=_short(values),
                name=f"{name}, {layers}",
                mode="lines",
                line={"color": LINES[n % len(LINES)], "dash": dash, "width": 2},
                hovertemplate=f"pair %{{x}}: {name} %{{y:.3g}}<extra></extra>",
            )
    figure.update_xaxes(title_text="pair of channels, fastest first")
    figure.update_yaxes(title_text="norm of its two rows", rangemode="tozero")
    return _laid_out(figure, 360, legend=True)


def _line(n: int) -> dict[str, object]:
    dash = DASHES[n // len(LINES) % len(DASHES)]
    return {"color": LINES[n % len(LINES)], "dash": dash, "width": 2}


def _laid_out(figure: go.Figure, height: int, legend: bool = False) -> go.Figure:
    figure.update_layout(
        height=height,
        margin={"l": 10, "r": 15, "t": 50, "b": 45},
        showlegend=legend,
        legend={"orientation": "h", "y": 1, "yref": "container", "yanchor": "top", "x": 0},
    )
    figure.update_yaxes(automargin=True)
    return figure


def _short(values: list[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
