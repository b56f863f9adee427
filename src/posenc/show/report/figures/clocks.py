"""A figure of rotary pairs as clocks, whose hands turn with the position."""

from collections.abc import Sequence
from math import atan2, cos, hypot, pi, sin

from posenc.analysis.clocks import Clock, Clocks
from posenc.show.report.drawing.data_table import evenly_spaced
from posenc.show.report.drawing.figure import BLUE, GREEN, GREY, VERMILION, Figure, Panel
from posenc.show.report.drawing.marks import Arrows, Line, Points
from posenc.show.report.phrases import tokens
from posenc.support.numbers import number

CIRCLE = [pi * n / 36 for n in range(73)]
STEPS = 4  # positions at which each clock is drawn


def turning(name: str, clocks: Clocks) -> Figure:
    """Draw the rotation of a query and an earlier key; the angle between them stays the same."""
    first, last, gap = clocks.position[0], clocks.position[-1], clocks.gap
    steps = evenly_spaced(len(clocks.position), STEPS)
    angles = ", ".join(number(clock.theta * gap) for clock in clocks.clocks)
    changed = max(clock.changed for clock in clocks.clocks)
    return Figure(
        f"{name}: query and key turn, the angle between them is constant",
        [_clock(clock, clocks, step) for clock in clocks.clocks for step in steps],
        f"{len(clocks.clocks)} pairs of channels as clocks: the key at n goes from position {first}"
        f" to {last}, the query at m is {gap} tokens ahead. Each token turns both hands by θ, so"
        f" the angle from key to query is always {gap} θ: {angles} radians. The measured angles"
        f" change by {number(changed, 1)} radians at most.",
        columns=len(steps),
    )


def _clock(clock: Clock, clocks: Clocks, step: int) -> Panel:
    """Draw one rotary pair of query and key as two hands on a dial, with the arc between them."""
    (x, y), (u, v) = clock.query[step], clock.key[step]
    n, gap = clocks.position[step], clocks.gap
    radius = max(hypot(*hand) for hand in (*clock.query, *clock.key))
    start, between = atan2(v, u), clock.theta * gap
    arc = [start + between * share / 24 for share in range(25)]
    lines = (
        f"query, m = {n + gap}: mθ = {number(clock.theta * (n + gap))}",
        f"key, n = {n}: nθ = {number(clock.theta * n)}",
        f"(m − n)θ = {number(between)}",
    )
    below = [-radius * (1.35 + 0.3 * line) for line in range(len(lines))]
    return Panel(
        f"channels {clock.channels[0]} and {clock.channels[1]}: {tokens(clock.wavelength)} tokens"
        " a turn",
        [
            Line(*_at(CIRCLE, radius), "", GREY, "dot", width=1),
            Arrows([0], [0], [x], [y], "query", BLUE),
            Arrows([0], [0], [u], [v], "key", VERMILION),
            Line(*_at(arc, 0.5 * radius), "angle between them", GREEN, width=3),
            Points([0] * len(lines), below, "", "", "", labels=lines, side="middle"),
        ],
        x_range=(-1.15 * radius, 1.15 * radius),
        y_range=(-2.15 * radius, 1.15 * radius),
        square=True,
        bare=True,
    )


def _at(angles: Sequence[float], radius: float) -> tuple[list[float], list[float]]:
    return [radius * cos(angle) for angle in angles], [radius * sin(angle) for angle in angles]
