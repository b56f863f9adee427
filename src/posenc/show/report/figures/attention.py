"""Figures of attention weights, and of the part of the scores that is due to positions."""

from collections.abc import Sequence

from posenc.analysis.decomposition import Decomposition
from posenc.analysis.order import Order
from posenc.show.report.drawing.figure import PURPLE, VERMILION, Figure, Panel, Values
from posenc.show.report.drawing.marks import CELLS, Line, Points, heat
from posenc.show.report.phrases import change

NUMBERED = 12  # tokens up to which a cell has room for its number
HEADS = 2  # heads that are shown without positions and with them


def attention(
    weights: Sequence[Sequence[Values]], tokens: Sequence[str] = (), names: Sequence[str] = ()
) -> Figure:
    """Draw attention weights (head, query, key) as one heat map for each head."""
    names = names or [f"head {n}" for n in range(len(weights))]
    panels = [
        Panel(
            name,
            [heat(head, unit="weight", high=1.0, digits=_digits(tokens))],
            "key: looked at",
            "query: looks",
            x_names=_fitting(tokens, head[0]),
            y_names=_fitting(tokens, head),
            y_down=True,
            square=True,
        )
        for name, head in zip(names, weights, strict=True)
    ]
    distances = []
    for name, head in zip(names, weights, strict=True):
        back = [
            weight * abs(i - j)
            for i, row in enumerate(head)
            for j, weight in enumerate(row)
            if weight is not None
        ]
        distances.append(f"{name}: {sum(back) / len(head):.1f}")
    return Figure(
        "Attention",
        panels,
        f"Attention between {len(weights[0])} tokens. Mean attention distance in tokens:"
        f" {' · '.join(distances)}.",
        columns=min(len(panels), 2 if len(panels) < 5 else 3),
    )


def compared(
    without: Sequence[Sequence[Values]],
    weights: Sequence[Sequence[Values]],
    tokens: Sequence[str],
) -> Figure:
    """Draw attention weights (head, query, key) of a layer without and with positions.

    Rows of repeated words are framed.
    """
    shown = range(min(HEADS, len(weights)))
    places = [n for n, token in enumerate(tokens) if list(tokens).count(token) > 1]
    end = len(tokens) - 0.5
    frames = [
        Line(
            [-0.5, end, end, -0.5, -0.5], [n - 0.5, n - 0.5, n + 0.5, n + 0.5, n - 0.5], "", PURPLE
        )
        for n in places
    ]
    panels = [
        Panel(
            f"head {n}, {how} positions",
            [heat(layer[n], unit="weight", high=1.0, digits=_digits(tokens)), *frames],
            "key: looked at",
            "query: looks",
            x_names=_fitting(tokens, layer[n]),
            y_names=_fitting(tokens, layer[n]),
            y_down=True,
            square=True,
        )
        for n in shown
        for how, layer in (("without", without), ("with", weights))
    ]
    says = f"Attention of {len(tokens)} words in a layer of seeded weights"
    if places:
        word = tokens[places[0]]
        rows = [n for n in places if tokens[n] == word]
        apart = [
            max(
                abs((a or 0) - (b or 0))
                for head in layer
                for a, b in zip(head[rows[0]], head[rows[1]], strict=True)
            )
            for layer in (without, weights)
        ]
        says += (
            f", without positions and with them. The rows of “{word}”, framed, differ by"
            f" {apart[0]:.2f} at most without, and by {apart[1]:.2f} with."
        )
    else:
        says += ", without positions and with them; no word is repeated."
    return Figure("Attention without positions and with them", panels, says, columns=2)


def decomposition(decomposed: Decomposition, tokens: Sequence[str] = (), head: int = 0) -> Figure:
    """Draw the scores of one head, and each term of their sum, on one colour scale."""
    parts = {name: values[head] for name, values in decomposed.parts.items()}
    scores = decomposed.scores[head]
    high = max(abs(v) for rows in (scores, *parts.values()) for row in rows for v in row) or 1.0
    named = {name: f"{name} tokens" if name.startswith("λ") else name for name in parts}
    shown = {"scores": scores} | {
        f"{named[name]}: {_percent(decomposed.by_head[name][head])}": values
        for name, values in parts.items()
    }
    panels = [
        Panel(
            title,
            [heat(values, signed=True, unit="logits", high=high)],
            "key",
            "query",
            x_names=_fitting(tokens, values[0]),
            y_names=_fitting(tokens, values),
            y_down=True,
            square=True,
        )
        for title, values in shown.items()
    ]
    shares = ", ".join(f"{named[name]} {_percent(s)}" for name, s in decomposed.shares.items())
    heads = len(decomposed.scores)
    return Figure(
        f"{decomposed.encoding}: the terms of the scores",
        panels,
        f"Scores of head {head} of {heads} and their {len(parts)} terms, each with its share of"
        f" the input of softmax in that head. Over all heads: {shares}.",
        columns=3,
    )


def shuffled(order: Order) -> Figure:
    """Draw the change of each token's output when the words of a text are shuffled."""
    places = range(len(order.tokens))
    share = [100 * change for change in order.change]
    without = [100 * change for change in order.without]
    marks = [
        Points(places, share, "as it is"),
        Points(places, without, "positions switched off", VERMILION, "diamond"),
    ]
    mean, mean_without = (sum(values) / len(values) / 100 for values in (share, without))
    says = (
        f"When {len(order.tokens)} tokens are shuffled, their outputs change by"
        f" {100 * mean:.0f} % on average; with positions switched off: {change(mean_without)}."
    )
    if order.twins and order.apart is not None and order.apart_without is not None:
        says += (
            f" The two outputs of “{order.tokens[order.twins[0]]}” differ by {order.apart:.0%};"
            f" without positions: {change(order.apart_without)}."
        )
    panel = Panel("", marks, "", "change, %", x_names=order.tokens)
    return Figure("A shuffled text", [panel], says, height=260)


def _digits(tokens: Sequence[str]) -> int | None:
    """Return the number of digits in each cell of a heat map, or None for cells without numbers."""
    return 2 if 0 < len(tokens) <= NUMBERED else None


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("-0%", "0%").replace("-", "−")


def _fitting(tokens: Sequence[str], values: Sequence[object]) -> Sequence[str]:
    """Return the tokens as axis names if all of them fit beside the heat map, otherwise ()."""
    return tokens if len(tokens) == len(values) <= CELLS else ()
