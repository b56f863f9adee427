"""Words in the plane, before and after positions; and similarity over the cells of a picture."""

from collections.abc import Mapping, Sequence
from math import hypot

from posenc.analysis.geometry import Plane, Turned
from posenc.analysis.grids import Map
from posenc.report.drawing.figure import BLUE, GREY, WHITE, Arrows, Figure, Panel, Points, heat


def projection(found: Mapping[str, Plane]) -> Figure:
    """A sentence in its plane of most variance: as it is, and with each encoding added."""
    planes = list(found.values())
    first = planes[0]
    panels = [
        _words("without positions", first.words, first.before, first.explained[0], GREY),
        *(
            _words(name, one.words, one.after, one.explained[1], BLUE)
            for name, one in found.items()
        ),
    ]
    told = "; ".join(
        f"{name}: {one.kept:.0%} of the words keep their nearest neighbour, and the first axis"
        f" follows their order with a correlation of {one.ordered[1]:.2f}"
        for name, one in found.items()
    )
    return Figure(
        "Words before and after positions",
        panels,
        f"{len(first.words)} words in the plane. {told}.",
        columns=2,
        height=360,
    )


def rotation(found: Mapping[str, Turned], pair: tuple[str, str]) -> Figure:
    """Two words of each sentence in the plane, turned by where they stand: the angle stays."""
    panels, told = [], []
    for name, one in found.items():
        places = [one.words.index(word) for word in pair]
        labels = [f"{word}, {one.position[n]}" for word, n in zip(pair, places, strict=True)]
        marks = [
            _arrows(one.before, places, "before", GREY),
            _arrows(one.after, places, "turned", BLUE, labels),
        ]
        angle = one.angle(places[0], places[1])
        room = 1.25 * max(hypot(*one.before[n]) for n in places)
        told.append(f"{angle:.1f}".replace("-", "−") + f"° in “{name}”")
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
    theta = next(iter(found.values())).theta
    return Figure(
        "The angle between two words stays",
        panels,
        f"“{pair[0]}” and “{pair[1]}”, turned by {theta:.3g} radians a token. From one to the"
        f" other: {', '.join(told)}.",
        columns=len(found),
    )


def grids(found: Mapping[str, Map], head: int = 0) -> Figure:
    """Similarity of the patches of an image to a chosen one, by position alone."""
    panels, told, first = [], [], next(iter(found.values()))
    for name, one in found.items():
        row, column = one.chosen
        values = one.heads[head]
        flat = [v for line in values for v in line]
        told.append(
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
        f" in row {first.chosen[0]}, column {first.chosen[1]}. {'; '.join(told)}.",
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
