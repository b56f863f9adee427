"""What a real model does with its own positions, on its own words."""

from posenc.analysis.order import Order
from posenc.analysis.reading import Layer, Reading
from posenc.report.drawing import BLUE, VERMILION, Band, Figure, Line, Panel, Points
from posenc.report.figures.attention import attention


def layers(found: Reading) -> Figure:
    """Attention of some layers, the mean of their heads."""
    names = [f"layer {one.number}" for one in found.layers]
    return attention([one.weights for one in found.layers], found.tokens, names)


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


def shuffled(found: Order) -> Figure:
    """How much of what each token gets changes when the words change places."""
    places = range(len(found.tokens))
    marks = [
        Points([100 * v for v in found.change], places, "as the model is", BLUE),
        Points([100 * v for v in found.without], places, "positions off", VERMILION, "diamond"),
    ]
    mean, most = sum(found.change) / len(found.change), max(found.without)
    return Figure(
        "The order of words",
        [
            Panel(
                "",
                marks,
                "change, % of what the last layer says of a token",
                y_names=found.tokens,
                y_down=True,
            )
        ],
        f"When the words change places, what the model says of a token changes by {mean:.0%} on"
        f" average. With positions switched off it changes by {most:.1g} of itself at most"
        + (": rounding." if most < 1e-3 else ", since a mask lets each token see another set."),
        height=max(120, 20 * len(found.tokens)),
    )


def _curve(one: Layer) -> Panel:
    curve, others = one.curve, slice(1, None)  # a token is most like itself
    x = curve.distance[others]
    marks = [
        Band(x, curve.low[others], curve.high[others], "four fifths of the scores"),
        Line(x, curve.mean[others], "mean score"),
    ]
    return Panel(f"layer {one.number}", marks, "tokens back", "score, logits")
