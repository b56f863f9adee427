"""Figures of a real model: its own positions, on its own words."""

from dataclasses import replace

from posenc.report.drawing.figure import Band, Figure, Line, Panel
from posenc.report.figures.attention import attention
from posenc.studies.real_model import Layer, Reading


def layers(found: Reading) -> Figure:
    """Attention of some layers, the mean of their heads."""
    names = [f"layer {one.number}" for one in found.layers]
    made = attention([one.weights for one in found.layers], found.tokens, names)
    return replace(made, title="Attention, the mean of the heads of a layer", columns=3)


def heads(found: Reading) -> Figure:
    """Attention of heads of the first layer."""
    made = attention(found.heads, found.tokens)
    return replace(made, title="Attention of the first layer, head by head", columns=4)


def distances(found: Reading) -> Figure:
    """Scores of a window of the text against how far apart its tokens are."""
    panels = [_curve(one) for one in found.layers]
    told = ", ".join(
        f"{one.curve.mean[1]:.3g} to {one.curve.mean[-1]:.3g} in layer {one.number}"
        for one in found.layers
    )
    return Figure(
        "Scores of a model against distance",
        panels,
        f"{found.window} tokens of the text. From neighbours to the tokens farthest apart, the mean"
        f" score goes from {told}.",
        columns=len(panels),
        height=220,
    )


def _curve(one: Layer) -> Panel:
    curve, others = one.curve, slice(1, None)  # a token is most like itself
    x = curve.distance[others]
    marks = [
        Band(x, curve.low[others], curve.high[others], "four fifths of the scores"),
        Line(x, curve.mean[others], "mean score"),
    ]
    return Panel(f"layer {one.number}", marks, "tokens back", "score, logits")
