"""Figures of a real model: its own positions, on its own words."""

from dataclasses import replace

from posenc.core.numerals import number
from posenc.lab.compare.real_model import Layer, Reading
from posenc.show.report.drawing.figure import Band, Figure, Line, Panel
from posenc.show.report.figures.attention import attention


def layers(reading: Reading) -> Figure:
    """Draw the attention of some layers, the mean of their heads."""
    names = [f"layer {layer.number}" for layer in reading.layers]
    figure = attention([layer.weights for layer in reading.layers], reading.tokens, names)
    return replace(figure, title="Attention, the mean of the heads of a layer", columns=3)


def heads(reading: Reading) -> Figure:
    """Draw the attention of heads of the first layer."""
    figure = attention(reading.heads, reading.tokens)
    title, says = "Attention of the first layer, head by head", f"{figure.says}{_looks(reading)}"
    return replace(figure, title=title, says=says, columns=4)


def _looks(reading: Reading) -> str:
    """Name the heads that look at one place by position: over half of their weight goes there."""
    sentences = ""
    for n, weights in enumerate(reading.heads):
        for back, place in (
            (1, "the token before"),
            (0, "the token itself"),
            (-1, "the next token"),
        ):
            there = [row[q - back] for q, row in enumerate(weights) if 0 <= q - back < len(row)]
            mean = sum(weight or 0.0 for weight in there) / max(1, len(there))
            if mean > 0.5:
                sentences += f" Head {n} looks at {place}: {mean:.2f} of its weight, on average."
    return sentences


def distances(reading: Reading) -> Figure:
    """Draw scores of a window of the text against how far apart its tokens are."""
    panels = [_curve(layer) for layer in reading.layers]
    scores = ", ".join(
        f"{number(layer.curve.mean[1])} to {number(layer.curve.mean[-1])} in layer {layer.number}"
        for layer in reading.layers
    )
    return Figure(
        "Scores of a model against distance",
        panels,
        f"{reading.window} tokens of the text. From neighbours to the tokens farthest apart, the"
        f" mean score goes from {scores}.",
        columns=len(panels),
        height=220,
    )


def _curve(layer: Layer) -> Panel:
    curve, others = layer.curve, slice(1, None)  # a token is most like itself
    x = curve.distance[others]
    marks = [
        Band(x, curve.low[others], curve.high[others], "80 % of the scores"),
        Line(x, curve.mean[others], "mean score"),
    ]
    return Panel(f"layer {layer.number}", marks, "tokens back", "score, logits")
