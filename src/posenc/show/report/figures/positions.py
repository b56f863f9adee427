"""Figures of position vectors: their similarity, distances, attention bias, and shift matrices."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import pi
from statistics import fmean

from posenc.analysis.shift_matrix import Group
from posenc.analysis.similarity import Between, Bound, PairsApart, Peak
from posenc.show.report.drawing.data_table import evenly_spaced, format_number
from posenc.show.report.drawing.figure import (
    COLOURS,
    DASHES,
    VERMILION,
    Figure,
    Mark,
    Panel,
    Side,
    Values,
    style,
)
from posenc.show.report.drawing.marks import Line, Points, Rule, heat
from posenc.support.numbers import number

CURVES = 6  # channels that are drawn as curves


def encoding(name: str, rows: Sequence[Values]) -> Figure:
    """Draw position vectors (position, channel) as a heat map."""
    shown = heat([list(channel) for channel in zip(*rows, strict=True)], signed=True, unit="value")
    largest = shown.span[1]
    return Figure(
        f"{name}: rows of positions",
        [Panel("", [shown], "position", "channel", y_down=True)],
        f"Heat map of {name}: {len(rows)} positions from left to right, {len(rows[0])} channels"
        f" from top to bottom, values between −{number(largest)} and {number(largest)}.",
    )


def angles(name: str, rows: Sequence[Values], of: str) -> Figure:
    """Draw the angles (position, pair) of rotary pairs as a heat map, or their cosines."""
    pairs = [list(pair) for pair in zip(*rows, strict=True)]
    angle = of == "angle"
    shown = heat(pairs, signed=True, unit="radians" if angle else "cos", high=pi if angle else 1.0)
    limits = "angles between −π and π" if angle else "cosines between −1 and 1"
    return Figure(
        f"{name}: how far each pair is turned"
        if angle
        else f"{name}: cosine of how far each pair is turned",
        [Panel("", [shown], "position", "pair", y_down=True)],
        f"Heat map of {name}: {len(rows)} positions from left to right, {len(pairs)} pairs of"
        f" channels from top to bottom, {limits}.",
    )


def channels(name: str, rows: Sequence[Values], chosen: Sequence[int] = ()) -> Figure:
    """Draw a few channels of position vectors (position, channel) as curves.

    `chosen` are the indices of channels; empty: evenly spaced channels.
    """
    picked = chosen or evenly_spaced(len(rows[0]), CURVES)
    values = [v for row in rows for v in row if v is not None]
    room = 0.05 * (max(values) - min(values)) or 1.0
    panels = [
        Panel(
            f"channel {n}",
            [Line(range(len(rows)), [row[n] for row in rows], marker="")],
            "position",
            "value",
            y_range=(min(values) - room, max(values) + room),
        )
        for n in picked
    ]
    return Figure(
        f"{name}: channels against the position",
        panels,
        f"{len(picked)} of {len(rows[0])} channels of {name} over {len(rows)} positions, values"
        f" between {number(min(values))} and {number(max(values))}.",
        columns=2,
        height=110,
    )


def similarity(name: str, between: Between) -> Figure:
    """Draw the similarity of the vectors of every two positions.

    The panels are the cosine and, if the vectors differ in length, the dot product.
    """
    tokens = len(between.dot)
    high = _palette_end(between.dot)
    lengths = [between.dot[p][p] for p in range(tokens)]
    same = max(lengths) - min(lengths) <= 1e-3 * max(lengths)
    none = {p for p in range(tokens) if not lengths[p]}  # positions whose vectors are zero
    cosine = [
        [None if none & {m, n} else value for n, value in enumerate(row)]
        for m, row in enumerate(between.cosine)
    ]
    panels = [
        Panel(
            title,
            [heat(values, signed=True, unit=unit, high=high)],
            "position",
            "position",
            y_down=True,
            square=True,
        )
        for title, values, unit, high in (
            ("dot product", between.dot, "dot product", high),
            ("cosine", cosine, "cosine", 1.0),
        )
        if title == "cosine" or not same
    ]
    pairs = [
        (value, m, n)
        for m, row in enumerate(cosine)
        for n, value in enumerate(row[:m])
        if value is not None
    ]
    says = f"Similarity of {tokens} positions of {name} with each other."
    if pairs:
        least, m, n = min(pairs)
        near = [value for value, m, n in pairs if m == n + 1]
        says += f" Positions {n} and {m} are least similar, with a cosine of {least:.2f};"
        says += f" neighbours have {fmean(near):.2f} on average."
    if same:
        says += " All have the same length, so the dot product is"
        says += f" {number(lengths[0], 4)} times the cosine."
    if none:
        says += f" Rows of zeros have no direction: {', '.join(map(str, sorted(none)))}."
    return Figure(
        f"{name}: similarity of positions",
        panels,
        says,
        columns=2,
    )


def _palette_end(values: Sequence[Values]) -> float | None:
    """Return the value at which the colour scale is clipped, or None if it is not clipped."""
    sizes = sorted(abs(v) for row in values for v in row if v is not None)
    most = sizes[int(0.99 * (len(sizes) - 1))]
    return most if 0 < 2 * most < sizes[-1] else None


def bias(name: str, scores: Sequence[Sequence[float]]) -> Figure:
    """Draw the bias of each head, against the distance, as a line.

    The shape of `scores` is (head, tokens back).
    """
    back = range(len(scores[0]))
    few = len(scores) <= len(COLOURS) * len(DASHES)
    lines = [
        replace(Line(back, head, f"head {n}" if few else "", **style(n)), marker="")
        for n, head in enumerate(scores)
    ]
    # −0.0 + 0.0 is 0.0, so that no number is written as −0
    values = [value + 0.0 for head in scores for value in head]
    falling = sum(list(head) == sorted(head, reverse=True) for head in scores)
    return Figure(
        f"{name}: bias by distance",
        [Panel("", lines, "tokens back", "added to the score, logits")],
        f"{name} adds between {format_number(min(values))} and {format_number(max(values))} to the"
        f" scores of a query and the {len(back)} tokens up to it. In {falling} of {len(scores)}"
        " heads the bias never rises with distance.",
        height=280,
    )


def decay(by_name: Mapping[str, PairsApart]) -> Figure:
    """Draw the similarity of two positions under RoPE against their distance."""
    panels, words = [], []
    for name, waves in by_name.items():
        # A logarithmic axis has no 0
        distance = waves.distance[1:]
        shares = waves.share
        marks: list[Mark] = [Line(distance, shares[1:], width=1.5), Rule(0, "y", dash="solid")]
        found_at: tuple[tuple[str, int | None, Side], ...] = (
            ("first rises", waves.rises, "right above"),
            ("first negative", waves.negative, "left below"),
        )
        places = [f"{what} {'nowhere' if at is None else f'at {at:,}'}" for what, at, _ in found_at]
        words.append(f"{name}: {', '.join(places)}")
        for what, at, side in found_at:
            if at is not None:
                marks.append(
                    Points(
                        [at], [shares[at]], "", VERMILION, labels=[f"{what} at {at:,}"], side=side
                    )
                )
        x_title = "distance δ, tokens"
        panels.append(Panel(name, marks, x_title, "B(δ) / B(0)", x_log=True, y_range=(-0.4, 1.1)))
    longest = max(waves.distance[-1] for waves in by_name.values())
    return Figure(
        "Similarity against distance",
        panels,
        "B(δ), the sum of cos δθ over all pairs, is the similarity of two positions δ tokens apart."
        f" It falls with distance, but not steadily. Within {longest:,} tokens,"
        f" {'; '.join(words)}.",
        columns=len(by_name),
        height=220,
    )


def apart(by_name: Mapping[str, PairsApart]) -> Figure:
    """Draw the distance of each position's vector to the vector of position 0.

    - `by_name`: frequencies of one or more encodings, each a line
    """
    lines, words = [], []
    for n, (name, waves) in enumerate(by_name.items()):
        label = name if len(by_name) > 1 else ""
        lines.append(replace(Line(waves.distance, waves.apart, label, **style(n)), marker=""))
        back = sum(after < before for before, after in pairwise(waves.apart))
        words.append(f"{name}: {back / (len(waves.apart) - 1):.0%} of the steps go back")
    return Figure(
        "Distance to position 0",
        [Panel("distance to position 0", lines, "position", "distance")],
        f"Distance between the row of each position and the row of position 0: {'; '.join(words)}.",
        height=220,
    )


def bound(bounds: Bound) -> Figure:
    """Draw the largest score at each distance or farther, and RoFormer's upper bound on it."""
    # A logarithmic axis has no 0
    distance, farther = bounds.distance[1:], _largest_from(bounds.size[1:])
    limit, half = _largest_from(bounds.bound[1:]), len(bounds.distance) // 2
    return Figure(
        "An upper bound is not a decay",
        [
            Panel(
                "",
                [
                    Line(distance, limit, "upper bound", VERMILION, "dash"),
                    Line(distance, farther, "score"),
                ],
                "distance δ, tokens",
                "largest at δ or farther",
                x_log=True,
                y_log=True,
            )
        ],
        f"The largest score |q · R(δ) k| of this query and key is {format_number(farther[0])}; from"
        f" {half:,} tokens on it is still {format_number(farther[half - 1])}. RoFormer's bound"
        f" falls from {format_number(limit[0])} to {format_number(limit[half - 1])}, far above both"
        " scores: a falling bound does not make scores fall.",
        height=280,
    )


def _largest_from(values: Sequence[float]) -> list[float]:
    """Return the maximum of values[n:] for each n."""
    return [*accumulate(reversed(values), max)][::-1]


def peak(curve: Peak) -> Figure:
    """Draw scores by distance for a key that is made to score highest at a chosen distance.

    The figure shows that RoPE scores need not decay with distance.
    """
    top = curve.score[curve.best]
    return Figure(
        "Any distance can be the best",
        [
            Panel(
                "",
                [
                    Line(curve.distance, curve.score, width=1.5),
                    Points([curve.best], [top], labels=[f"{curve.best:,} tokens"]),
                ],
                "distance, tokens",
                "q · R(δ) k",
            )
        ],
        f"Scores of a query and a key made to match {curve.target:,} tokens back: {number(top)}"
        f" there, {number(curve.score[0])} at distance 0. The largest is at distance"
        f" {curve.best:,}.",
        height=260,
    )


def shift(name: str, group: Group) -> Figure:
    """Draw the matrices M_a, M_b, M_(a+b) that shift position vectors, and the product M_a · M_b.

    M_a is fitted to move the vector of each position by a tokens, independently of the others. If
    the product equals M_(a+b), shifts compose.
    """
    a, b = group.a.by, group.b.by
    shown = (
        (f"M{_sub(a)}", group.a.matrix),
        (f"M{_sub(b)}", group.b.matrix),
        (f"M{_sub(a)} M{_sub(b)}", group.product),
        (f"M{_sub(a + b)}", group.both.matrix),
    )
    high = max(1.0, *(abs(v) for _, matrix in shown for row in matrix for v in row))
    panels = [
        Panel(
            title,
            [heat(matrix, signed=True, unit="entry", high=high)],
            "from channel",
            "to channel",
            y_down=True,
            square=True,
        )
        for title, matrix in shown
    ]
    missed = max(shift.missed for shift in (group.a, group.b, group.both))
    if missed < 1e-3:
        says = (
            f"One matrix moves every position of {name} by {a} tokens, another by {b} tokens. Their"
            f" product and the matrix for {a + b} differ by {number(group.apart, 1)} at most."
        )
    else:
        says = (
            f"No matrix moves every position of {name}: the best ones, for {a}, {b} and {a + b}"
            f" tokens, miss by up to {number(missed, 2)} of the length of a row."
        )
    return Figure(f"{name}: the matrix that moves a position", panels, says, columns=4)


def _sub(k: int) -> str:
    return str(k).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
