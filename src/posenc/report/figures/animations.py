"""Animations of a vector as its position advances; a slider moves them."""

from collections.abc import Callable, Mapping, Sequence
from math import cos, hypot, pi, sin

from posenc.analysis.trajectory import Advance
from posenc.report.drawing.figure import (
    BLUE,
    GREY,
    PURPLE,
    VERMILION,
    Arrows,
    Figure,
    Frame,
    Line,
    Panel,
    Points,
    Values,
    heat,
)

CIRCLE = [pi * n / 36 for n in range(73)]


def vectors(advances: Mapping[str, Advance]) -> Figure:
    """The same vector under several encodings, channel by channel, one panel each."""

    def panels(step: int) -> list[Panel]:
        drawn = []
        for name, advance in advances.items():
            channels = range(len(advance.vector))
            marks = [Line(channels, advance.vector, "without position", GREY, "dash", "square")]
            if advance.added:
                marks.append(
                    Line(channels, advance.added[step], "added", VERMILION, "dot", "diamond")
                )
            marks.append(
                Line(channels, advance.placed[step], "with position", BLUE, marker="circle")
            )
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
        f"What a vector of length {_norm(next(iter(advances.values())).vector):.3g} becomes at"
        f" positions {position[0]} to {position[-1]}. Its length: {'; '.join(lengths)}.",
        columns=2,
        height=220,
        frames=_states(position, panels),
    )


def codes(advances: Mapping[str, Advance]) -> Figure:
    """The rows that are added, or the turned vector, at each position; one row is framed."""
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


def paths(advances: Mapping[str, Advance]) -> Figure:
    """The path of a vector in the plane of its two widest directions."""

    def panels(step: int) -> list[Panel]:
        drawn = []
        for name, advance in advances.items():
            x, y = map(list, zip(*advance.path, strict=True))
            marks = [
                Line(x, y, "whole path", GREY, "dot", width=1),
                Line(x[: step + 1], y[: step + 1], "so far", BLUE),
                Points([x[step]], [y[step]], "now", VERMILION, size=11),
            ]
            room = 1.1 * max(map(abs, x + y))
            first, second = "widest direction", "second widest"
            drawn.append(
                Panel(
                    name,
                    marks,
                    first,
                    second,
                    x_range=(-room, room),
                    y_range=(-room, room),
                    square=True,
                )
            )
        return drawn

    steps = [f"{name} {advance.largest_step:.2g}" for name, advance in advances.items()]
    position = _positions(advances)
    return Figure(
        "The path of a vector",
        panels(len(position) - 1),
        f"Positions {position[0]} to {position[-1]} in a plane. The longest step from one to the"
        f" next, to the mean distance of any two: {', '.join(steps)}.",
        columns=min(3, len(advances)),
        frames=_states(position, panels),
    )


def turning(name: str, advance: Advance, pairs: Sequence[tuple[int, int]]) -> Figure:
    """Pairs of channels (first, second) of a query turning, each in its own plane."""

    def panels(step: int) -> list[Panel]:
        return [
            _turned(advance.vector, advance.placed[step], first, second) for first, second in pairs
        ]

    lengths = [hypot(row[a], row[b]) for a, b in pairs[:1] for row in advance.placed]
    return Figure(
        f"{name}: pairs of channels turn",
        panels(len(advance.position) // 4),
        f"{len(pairs)} pairs of channels of a query, at positions {advance.position[0]} to"
        f" {advance.position[-1]}. The first pair keeps its length, {min(lengths):.3g} to"
        f" {max(lengths):.3g}; later pairs turn more slowly.",
        columns=min(4, len(pairs)),
        frames=_states(advance.position, panels),
    )


def _around(position: int, channels: int) -> Line:
    left, right, top, bottom = position - 0.5, position + 0.5, -0.5, channels - 0.5
    return Line([left, right, right, left, left], [top, top, bottom, bottom, top], "now", PURPLE)


def _turned(vector: Values, placed: Values, first: int, second: int) -> Panel:
    (x0, y0), (x, y) = ((row[first] or 0, row[second] or 0) for row in (vector, placed))
    radius = hypot(x, y)
    room = 1.15 * max(radius, hypot(x0, y0))
    return Panel(
        f"channels {first} and {second}",
        [
            _circle(radius),
            Arrows([0], [0], [x0], [y0], "without position", GREY, "dash"),
            Arrows([0], [0], [x], [y], "with position", BLUE),
        ],
        "first channel",
        "second channel",
        x_range=(-room, room),
        y_range=(-room, room),
        square=True,
    )


def _circle(radius: float) -> Line:
    x, y = ([radius * of(angle) for angle in CIRCLE] for of in (cos, sin))
    return Line(x, y, "", GREY, "dot", width=1)


def _states(position: Sequence[int], panels: Callable[[int], list[Panel]]) -> list[Frame]:
    """The panels at each position, to move through by the slider."""
    return [Frame(f"position {p}", panels(step)) for step, p in enumerate(position)]


def _positions(advances: Mapping[str, Advance]) -> list[int]:
    return next(iter(advances.values())).position


def _span(lengths: Sequence[float]) -> str:
    """The least and the largest length, or that it stays."""
    least, largest = (f"{value:.3g}" for value in (min(lengths), max(lengths)))
    return f"stays {least}" if least == largest else f"between {least} and {largest}"


def _norm(values: Sequence[float]) -> float:
    return hypot(*values)
