"""Figures of points in a plane: words before and after positions, patches of an image."""

from collections.abc import Mapping, Sequence
from math import hypot

from posenc.analysis.geometry import Plane, Turned
from posenc.analysis.grids import Map
from posenc.report.drawing.figure import BLUE, GREY, WHITE, Arrows, Figure, Panel, Points, heat


def projection(by_name: Mapping[str, Plane]) -> Figure:
    """A sentence in its plane of most variance, without positions and with each encoding."""
    planes = list(by_name.values())
    first = planes[0]
    panels = [
        _words("without positions", first.words, first.before, first.explained[0], GREY),
        *(
            _words(name, plane.words, plane.after, plane.explained[1], BLUE)
            for name, plane in by_name.items()
        ),
    ]
    findings = "; ".join(
        f"{name}: {plane.kept:.0%} of the words keep their nearest neighbour, and the first axis"
        f" follows their order with a correlation of {plane.ordered[1]:.2f}"
        for name, plane in by_name.items()
    )
    return Figure(
        "Words before and after positions",
        panels,
        f"{len(first.words)} words in the plane. {findings}.",
        columns=2,
        height=360,
    )


def rotation(by_sentence: Mapping[str, Turned], pair: tuple[str, str]) -> Figure:
    """Two words of each sentence in the plane, turned by where they stand: the angle stays."""
    panels, angles = [], []
    for name, turned in by_sentence.items():
        places = [turned.words.index(word) for word in pair]
        labels = [f"{word}, {turned.position[n]}" for word, n in zip(pair, places, strict=True)]
        marks = [
            _arrows(turned.before, places, "before", GREY),
            _arrows(turned.after, places, "turned", BLUE, labels),
        ]
        angle = turned.angle(places[0], places[1])
        room = 1.25 * max(hypot(*turned.before[n]) for n in places)
        angles.append(f"{angle:.1f}".replace("-", "−") + f"° in “{name}”")
        panels.append(
            Panel(
                name,
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
        "The angle between two words stays",
        panels,
        f"“{pair[0]}” and “{pair[1]}”, turned by {theta:.3g} radians a token. From one to the"
        f" other: {', '.join(angles)}.",
        columns=len(by_sentence),
    )


def grids(by_name: Mapping[str, Map], head: int = 0) -> Figure:
    """Similarity of the patches of an image to a chosen one, by position alone."""
    panels, shares, first = [], [], next(iter(by_name.values()))
    for name, patches in by_name.items():
        row, column = patches.chosen
        values = patches.heads[head]
        flat = [v for line in values for v in line]
        shares.append(
            f"{name}: {sum(v > 0.5 for v in flat)} of {len(flat)} patches look over half alike"
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
        "How alike patches of an image are",
        panels,
        f"Scores of equal content in an image of {first.height} × {first.width} patches, to the one"
        f" in row {first.chosen[0]}, column {first.chosen[1]}. {'; '.join(shares)}.",
        columns=min(3, len(panels)),
    )


def _words(
    title: str,
    words: Sequence[str],
    points: Sequence[Sequence[float]],
    shown: float,
    colour: str,
) -> Panel:
    x, y = zip(*points, strict=True)
    return Panel(
        f"{title}: {shown:.0%} of the variance",
        [Points(x, y, colour=colour, size=6, labels=words)],
        "first direction",
        "second direction",
    )


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
