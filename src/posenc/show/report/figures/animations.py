"""Animations with a slider that moves a vector from position to position."""

from collections.abc import Callable, Mapping, Sequence
from math import atan2, cos, hypot, pi, sin

from posenc.analysis.clocks import Clock, Clocks
from posenc.analysis.trajectory import Advance
from posenc.show.report.drawing.figure import (
    BLUE,
    GREEN,
    GREY,
    PURPLE,
    VERMILION,
    Figure,
    Frame,
    Mark,
    Panel,
)
from posenc.show.report.drawing.marks import Arrows, Line, Points, Stems, heat
from posenc.show.report.phrases import tokens
from posenc.support.numbers import number

CIRCLE = [pi * n / 36 for n in range(73)]


def vectors(advances: Mapping[str, Advance]) -> Figure:
    """Draw a vector at each position under several encodings, one panel for each encoding."""

    def panels(step: int) -> list[Panel]:
        drawn = []
        for name, advance in advances.items():
            channels = range(len(advance.vector))
            marks: list[Mark] = [
                Points(channels, advance.vector, "without position", GREY, "dash", 14)
            ]
            if advance.added:
                marks.append(
                    Points(channels, advance.added[step], "added", VERMILION, "diamond", 7)
                )
            marks.append(Stems(channels, advance.placed[step], "with position", BLUE))
            shown = [advance.vector, *advance.placed, *(advance.added or [])]
            values = [v for row in shown for v in row] + [0]
            room = 0.05 * (max(values) - min(values))
            span = (min(values) - room, max(values) + room)
            drawn.append(Panel(name, marks, "channel", "value", y_range=span))
        return drawn

    lengths = [
        f"{name} {_span([_norm(row) for row in advance.placed])}"
        for name, advance in advances.items()
    ]
    position = _positions(advances)
    return Figure(
        "One vector, its position advancing",
        panels(len(position) // 4),
        f"A vector of length {number(_norm(next(iter(advances.values())).vector))} with each"
        f" encoding at positions {position[0]} to {position[-1]}. Its length:"
        f" {'; '.join(lengths)}.",
        columns=2,
        height=220,
        frames=_states(position, panels),
    )


def codes(advances: Mapping[str, Advance]) -> Figure:
    """Animate the vectors of all positions, with a box around the current position."""
    shown = {name: advance.added or advance.placed for name, advance in advances.items()}
    position = _positions(advances)
    cells = {
        name: heat(list(zip(*rows, strict=True)), position, signed=True, bar=False)
        for name, rows in shown.items()
    }

    def panels(step: int) -> list[Panel]:
        return [
            Panel(
                f"{name} (±{drawn.span[1]:.3g})",
                [drawn, _around(position[step], len(shown[name][0]))],
                "position",
                "channel",
                y_down=True,
            )
            for name, drawn in cells.items()
        ]

    return Figure(
        "Row after row",
        panels(len(position) // 4),
        f"Positions {position[0]} to {position[-1]} from left to right, channels from top to"
        f" bottom, for {', '.join(advances)}.",
        columns=2,
        height=180,
        frames=_states(position, panels),
    )


def turning(name: str, clocks: Clocks) -> Figure:
    """Draw a query and an earlier key that turn together, so that their angle stays constant."""

    def panels(step: int) -> list[Panel]:
        return [_clock(clock, clocks, step) for clock in clocks.clocks]

    first, last, gap = clocks.position[0], clocks.position[-1], clocks.gap
    angles = ", ".join(number(clock.theta * gap) for clock in clocks.clocks)
    changed = max(clock.changed for clock in clocks.clocks)
    return Figure(
        f"{name}: query and key turn, the angle between them is constant",
        panels(len(clocks.position) // 4),
        f"{len(clocks.clocks)} pairs of channels as clocks: the key at n goes from position {first}"
        f" to {last}, the query at m is {gap} tokens ahead. Each token turns both hands by θ, so"
        f" the angle from key to query is always {gap} θ: {angles} radians. The measured angles"
        f" change by {number(changed, 1)} radians at most.",
        columns=min(4, len(clocks.clocks)),
        frames=_states(clocks.position, panels),
    )


def _around(position: int, channels: int) -> Line:
    left, right, top, bottom = position - 0.5, position + 0.5, -0.5, channels - 0.5
    return Line([left, right, right, left, left], [top, top, bottom, bottom, top], "now", PURPLE)


def _clock(clock: Clock, clocks: Clocks, step: int) -> Panel:
    """Draw one rotary pair of query and key as two hands on a dial, with the arc between them."""
    (x, y), (u, v) = clock.query[step], clock.key[step]
    n, gap = clocks.position[step], clocks.gap
    radius = max(hypot(*hand) for hand in (*clock.query, *clock.key))
    start, between = atan2(v, u), clock.theta * gap
    arc = [start + between * share / 24 for share in range(25)]
    lines = (
        f"query, m = {n + gap}: mθ = {_radians(clock.theta * (n + gap))}",
        f"key, n = {n}: nθ = {_radians(clock.theta * n)}",
        f"(m − n)θ = {_radians(between)}",
    )
    below = [-radius * (1.35 + 0.3 * line) for line in range(len(lines))]
    return Panel(
        f"channels {clock.channels[0]} and {clock.channels[1]}: {tokens(clock.wavelength)} tokens"
        " a turn",
        [
            _circle(radius),
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


def _radians(angle: float) -> str:
    return number(angle)


def _at(angles: Sequence[float], radius: float) -> tuple[list[float], list[float]]:
    return [radius * cos(angle) for angle in angles], [radius * sin(angle) for angle in angles]


def _circle(radius: float) -> Line:
    return Line(*_at(CIRCLE, radius), "", GREY, "dot", width=1)


def _states(position: Sequence[int], panels: Callable[[int], list[Panel]]) -> list[Frame]:
    """Return the frames of an animation, one for each position on the slider."""
    return [Frame(f"position {p}", panels(step)) for step, p in enumerate(position)]


def _positions(advances: Mapping[str, Advance]) -> list[int]:
    return next(iter(advances.values())).position


def _span(lengths: Sequence[float]) -> str:
    """Describe how the length of a vector varies: "stays 3", or "between 3 and 4"."""
    least, largest = map(number, (min(lengths), max(lengths)))
    return f"stays {least}" if least == largest else f"between {least} and {largest}"


def _norm(values: Sequence[float]) -> float:
    return hypot(*values)
