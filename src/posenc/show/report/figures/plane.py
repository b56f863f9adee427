"""Figures of points in a plane: words without and with positions, and patches of an image."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import atan2, cos, hypot, radians, sin

from posenc.analysis.clouds import WORDS_EACH, Clouds
from posenc.analysis.geometry import Turned
from posenc.analysis.grids import Map
from posenc.show.report.drawing.figure import (
    BLUE,
    GREEN,
    GREY,
    WHITE,
    Figure,
    Mark,
    Panel,
    Values,
    style,
)
from posenc.show.report.drawing.marks import Arrows, Line, Points, heat
from posenc.show.report.phrases import sentence


def clouds(by_name: Mapping[str, Clouds]) -> Figure:
    """Draw words of five groups as points in a plane, without and with their positions."""
    panels = []
    for name, cloud in by_name.items():
        ends = [value for point in (*cloud.before, *cloud.after) for value in point]
        room = 0.08 * (max(ends) - min(ends))
        span = min(ends) - room, max(ends) + room
        (x, y), (to_x, to_y) = (zip(*points, strict=True) for points in (cloud.before, cloud.after))
        marks: list[Mark] = [Line(*_joined(cloud), "", GREY, width=0.6)]
        for group, first in enumerate(range(0, len(cloud.words), WORDS_EACH)):
            look = style(group)
            part = slice(first, first + WORDS_EACH)
            label = f"like “{cloud.words[first]}”"
            small = Points(x[part], y[part], "", look["colour"], look["marker"], 5)
            marks += [small, replace(small, x=to_x[part], y=to_y[part], name=label, size=9)]
        panels.append(
            Panel(
                f"{name}: {cloud.together[1]:.0%} have a similar word nearest",
                marks,
                "first direction of the words",
                "second direction",
                x_range=span,
                y_range=span,
                square=True,
            )
        )
    first = next(iter(by_name.values()))
    shares = ", ".join(f"{name} {cloud.together[1]:.0%}" for name, cloud in by_name.items())
    return Figure(
        "Words before and after positions",
        panels,
        f"{len(first.words)} words of the text in {len(set(first.group))} groups of similar words."
        " A line joins each word without its position (small) and with it (large). Without"
        f" positions {first.together[0]:.0%} have a word of their group nearest; with positions"
        f" {shares}.",
        columns=min(3, len(panels)),
    )


def _joined(cloud: Clouds) -> tuple[Values, Values]:
    """Return a line for each word, from its point without position to that with position."""
    pairs = zip(cloud.before, cloud.after, strict=True)
    points = [point for start, end in pairs for point in (start, end, (None, None))]
    return [x for x, _ in points], [y for _, y in points]


def rotation(by_sentence: Mapping[str, Turned], pair: tuple[str, str]) -> Figure:
    """Draw the same two words in several sentences, rotated by their positions.

    The angle between the two words is the same in all sentences.
    """
    panels, angles = [], []
    for name, turned in by_sentence.items():
        places = [turned.words.index(word) for word in pair]
        labels = [f"{word}, {turned.position[n]}" for word, n in zip(pair, places, strict=True)]
        marks: list[Mark] = [
            _arrows(turned.before, places, "before", GREY),
            _arrows(turned.after, places, "turned", BLUE, labels),
        ]
        angle = turned.angle(places[0], places[1])
        marks += _arc(turned.after[places[0]], angle)
        room = 1.25 * max(hypot(*turned.before[n]) for n in places)
        angles.append(f"{angle:.1f}".replace("-", "−") + f"° in “{sentence(name.split())}”")
        panels.append(
            Panel(
                sentence(name.split()),
                marks,
                "first channel",
                "second channel",
                x_range=(-room, room),
                y_range=(-room, room),
                square=True,
            )
        )
    theta = next(iter(by_sentence.values())).theta
    return Figure(
        "The angle between two words is the same in each sentence",
        panels,
        f"“{pair[0]}” and “{pair[1]}”, turned by {theta:.3g} radians a token. From one to the"
        f" other: {', '.join(angles)}.",
        columns=len(by_sentence),
    )


def grids(by_name: Mapping[str, Map], head: int = 0) -> Figure:
    """Draw the score of each image patch for one query patch, with equal content in all patches."""
    panels, shares, first = [], [], next(iter(by_name.values()))
    for name, patches in by_name.items():
        row, column = patches.chosen
        values = patches.heads[head]
        flat = [v for line in values for v in line]
        shares.append(
            f"{name}: {sum(v > 0.5 for v in flat)} of {len(flat)} patches have a score above 0.5"
        )
        panels.append(
            Panel(
                name,
                [
                    heat(values, signed=True, unit="score, a share", high=1.0),
                    Points([column], [row], colour=WHITE, marker="x", size=8),
                ],
                "column",
                "row",
                y_down=True,
                square=True,
            )
        )
    return Figure(
        "Similarity of the patches of an image",
        panels,
        f"Scores of equal content in an image of {first.height} × {first.width} patches, to the one"
        f" in row {first.chosen[0]}, column {first.chosen[1]}. {'; '.join(shares)}.",
        columns=min(3, len(panels)),
    )


def _arc(start: Sequence[float], angle: float) -> list[Line | Points]:
    """Draw the arc that starts at an arrow, with its angle in degrees beside its middle."""
    first, radius = atan2(start[1], start[0]), 0.4 * hypot(*start)
    turns = [first + radians(angle) * share / 24 for share in range(25)]
    label = f"{angle:.1f}°".replace("-", "−")
    x, y = ([radius * function(turn) for turn in turns] for function in (cos, sin))
    middle = [1.5 * x[12]], [1.5 * y[12]]
    return [
        Line(x, y, "angle between them", GREEN, width=2.5),
        Points(*middle, "", "", "", labels=[label], side="middle"),
    ]


def _arrows(
    points: Sequence[Sequence[float]],
    places: list[int],
    name: str,
    colour: str,
    labels: Sequence[str] = (),
) -> Arrows:
    zero = [0.0] * len(places)
    x, y = ([points[n][axis] for n in places] for axis in (0, 1))
    return Arrows(zero, zero, x, y, name, colour, "solid" if labels else "dash", labels)
