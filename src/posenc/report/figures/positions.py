"""Figures of positions: their rows, how alike they are, how one is moved to another."""

from collections.abc import Mapping, Sequence

from posenc.analysis.shifting import Group
from posenc.analysis.similarity import Between, Bound, Peak, Waves
from posenc.report.drawing.figure import (
    GREEN,
    VERMILION,
    Figure,
    Line,
    Mark,
    Panel,
    Points,
    Rule,
    Side,
    Values,
    heat,
)
from posenc.report.drawing.listing import told


def encoding(name: str, rows: Sequence[Values]) -> Figure:
    """Rows (position, channel), as of `Measured.rows`: positions from left to right."""
    shown = heat([list(channel) for channel in zip(*rows, strict=True)], signed=True, unit="value")
    most = shown.span[1]
    return Figure(
        f"{name}: what a position looks like",
        [Panel("", [shown], "position", "channel", y_down=True)],
        f"Heat map of {name}: {len(rows)} positions from left to right, {len(rows[0])} channels"
        f" from top to bottom, values between −{most:.3g} and {most:.3g}.",
    )


def similarity(name: str, found: Between) -> Figure:
    """Every position with every other: dot product and cosine."""
    tokens = len(found.dot)
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
            ("dot product", found.dot, "dot product", None),
            ("cosine", found.cosine, "cosine", 1.0),
        )
    ]
    pairs = [(found.cosine[m][n], m, n) for m in range(tokens) for n in range(m)]
    least, m, n = min(pairs)
    near = sum(found.cosine[p][p + 1] for p in range(tokens - 1)) / (tokens - 1)
    return Figure(
        f"{name}: how alike positions are",
        panels,
        f"Similarity of {tokens} positions of {name} with each other. Least alike are places {n}"
        f" and {m}, with a cosine of {least:.2f}; neighbours have {near:.2f} on average.",
        columns=2,
    )


def decay(found: Mapping[str, Waves]) -> Figure:
    """Similarity of two positions against their distance, for one set of frequencies or more."""
    alike, apart, words = [], [], []
    for name, waves in found.items():
        distance = waves.distance[1:]  # a logarithmic axis has no 0
        shares = waves.share
        marks: list[Mark] = [Line(distance, shares[1:], width=1.5), Rule(0, "y", dash="solid")]
        found_at: tuple[tuple[str, int | None, Side], ...] = (
            ("first rises", waves.rises, "right above"),
            ("first negative", waves.negative, "left below"),
        )
        for what, at, side in found_at:
            words.append(f"{name}: {what} {'nowhere' if at is None else f'at {at:,}'}")
            if at is not None:
                marks.append(
                    Points(
                        [at], [shares[at]], "", VERMILION, labels=[f"{what} at {at:,}"], side=side
                    )
                )
        x_title = "distance δ, tokens"
        alike.append(Panel(name, marks, x_title, "B(δ) / B(0)", x_log=True, y_range=(-0.4, 1.1)))
        line = Line(distance, waves.apart[1:], width=1.5)
        apart.append(Panel(name, [line], x_title, "|PE(δ) − PE(0)|", x_log=True))
    longest = max(waves.distance[-1] for waves in found.values())
    return Figure(
        "Similarity against distance",
        [*alike, *apart],
        f"Similarity falls with distance, but not steadily. Within {longest:,} tokens, with"
        f" {'; '.join(words)}.",
        columns=len(found),
        height=220,
    )


def bound(found: Bound) -> Figure:
    """RoFormer's upper bound next to the score that it bounds."""
    sizes = found.size
    times = sorted(b / s if s else float("inf") for b, s in zip(found.bound, sizes, strict=True))
    apart, distance = times[len(times) // 2], found.distance
    return Figure(
        "An upper bound is not a decay",
        [
            Panel(
                "this query and this key",
                [
                    Line(distance, sizes, "size of the score", width=1),
                    Line(distance, found.bound, "upper bound", VERMILION, "dash"),
                ],
                "distance δ, tokens",
                "|q · R(δ) k|",
                y_log=True,
            ),
            Panel(
                "the bound but for its factor",
                [Line(distance, found.mean, "", GREEN, "dashdot", width=1.5)],
                "distance δ, tokens",
                "mean |S|",
                y_range=(0, 1.05 * max(found.mean)),
            ),
        ],
        f"RoFormer's bound falls from {told(found.bound[0])} at distance 0 to"
        f" {told(found.bound[-1])} at {distance[-1]:,}, and levels off; typically it is"
        f" {told(apart)} times the score.",
        columns=2,
        height=280,
    )


def peak(found: Peak) -> Figure:
    """A key that scores best at a chosen distance: decay is not guaranteed."""
    top = found.score[found.best]
    return Figure(
        "Any distance can be the best",
        [
            Panel(
                "",
                [
                    Line(found.distance, found.score, width=1.5),
                    Points([found.best], [top], labels=[f"{found.best:,} tokens"]),
                ],
                "distance, tokens",
                "q · R(δ) k",
            )
        ],
        f"Scores of a query and a key made to match {found.target:,} tokens back: {top:.3g} there,"
        f" {found.score[0]:.3g} at distance 0. The largest is at distance {found.best:,}.",
        height=260,
    )


def shift(name: str, found: Group) -> Figure:
    """M_a, M_b, their product, and M_(a+b) fitted by itself."""
    a, b = found.a.by, found.b.by
    shown = (
        (f"M{_sub(a)}", found.a.matrix),
        (f"M{_sub(b)}", found.b.matrix),
        (f"M{_sub(a)} M{_sub(b)}", found.product),
        (f"M{_sub(a + b)}", found.both.matrix),
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
    missed = max(shift.missed for shift in (found.a, found.b, found.both))
    if missed < 1e-3:
        says = (
            f"One matrix moves every position of {name} by {a} tokens, another by {b}. Their"
            f" product and the matrix for {a + b} differ by {found.apart:.1g} at most."
        )
    else:
        says = (
            f"No matrix moves every position of {name}: the best ones, for {a}, {b} and {a + b}"
            f" tokens, miss by up to {missed:.2g} of the length of a row."
        )
    return Figure(f"{name}: the matrix that moves a position", panels, says, columns=4)


def _sub(k: int) -> str:
    return str(k).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
