"""Figures of many encodings side by side."""

from collections.abc import Sequence

from posenc.analysis.similarity import Curve
from posenc.report.drawing.figure import (
    BLUE,
    GREEN,
    GREY,
    VERMILION,
    Band,
    Figure,
    Line,
    Marker,
    Panel,
    Points,
    Rule,
    Table,
    heat,
)
from posenc.report.words import label
from posenc.studies.comparison import BLIND, Comparison, Measured, Order


def curves(result: Comparison) -> Figure:
    """Score against distance, one panel an encoding, NoPE dashed where it takes part."""
    plain = _plain(result)
    panels = [_curve(measured.name, measured, plain) for measured in result.encodings]
    falling = [measured.name for measured in result.encodings if _falls(measured.curve)]
    return Figure(
        "Score against distance",
        panels,
        f"Scores of words against how far apart they are, for {len(panels)} encodings. On average"
        f" the nearest quarter scores clearly higher than the farthest for: {_listed(falling)}.",
        columns=3,
    )


def rows(result: Comparison) -> Figure | None:
    """A vector at 64 positions: channels from the top, colours centred at 0."""
    panels = [
        _positions(measured.name, measured.rows) for measured in result.encodings if measured.rows
    ]
    if not panels:
        return None
    return Figure(
        "What a position looks like",
        panels,
        f"Heat maps of {len(panels)} encodings: positions from left to right, channels from top to"
        " bottom, each with a palette of its own that is centred at 0.",
        columns=3,
        height=150,
    )


def card(result: Comparison, measured: Measured) -> Figure:
    """One encoding by itself: what a position looks like, where it has rows, and its scores."""
    panels = [_positions("What a position looks like", measured.rows)] if measured.rows else []
    panels.append(_curve("Score against distance", measured, _plain(result)))
    rows = "Left, 64 positions and their channels. " if measured.rows else ""
    falls = "clearly higher than" if _falls(measured.curve) else "no higher than"
    return Figure(
        measured.name,
        panels,
        f"{rows}Scores of words against how far apart they are: on average the nearest quarter"
        f" scores {falls} the farthest.",
        columns=len(panels),
        height=240,
    )


def order(result: Comparison) -> Figure:
    """The shuffle and the duplicate test, without and with a causal mask."""
    names = [measured.name for measured in result.encodings]
    tests: dict[str, Sequence[Order | None]] = {
        "a shuffled sentence": [m.shuffle for m in result.encodings]
    }
    if any(measured.duplicate for measured in result.encodings):
        tests["two occurrences of a word"] = [m.duplicate for m in result.encodings]
    panels = []
    for title, orders in tests.items():
        plain, causal = (
            [100 * getattr(change_of, kind) if change_of else None for change_of in orders]
            for kind in ("plain", "causal")
        )
        y = range(len(names))
        marks = [
            Points(plain, y, "no mask"),
            Points(causal, y, "causal mask", VERMILION, "diamond"),
        ]
        change = "change, % of what attention computes"
        panels.append(Panel(title, marks, change, y_names=names, y_down=True))
    blind = [m.name for m in result.encodings if m.shuffle.plain < BLIND]
    return Figure(
        "Does it know the order?",
        panels,
        "How much changes when a sentence is shuffled, and between two occurrences of a word."
        f" Without a mask these cannot see the order: {_listed(blind)}.",
        columns=2,
        height=max(120, 24 * len(names)),
    )


def costs(result: Comparison) -> Figure:
    """Time and memory as multiples of NoPE."""
    names = [measured.name for measured in result.encodings]
    kinds: Sequence[tuple[str, str, str, Marker]] = (
        ("forward", "time, forward", BLUE, "circle"),
        ("training", "time, training", VERMILION, "diamond"),
        ("training_memory", "memory, training", GREEN, "square"),
    )
    marks = [
        Points(
            [m.cost_ratio[key] for m in result.encodings], range(len(names)), name, colour, marker
        )
        for key, name, colour, marker in kinds
    ]
    others = [m for m in result.encodings if m.slug != "nope"] or result.encodings
    cheapest, *_, dearest = sorted(2 * others, key=lambda m: m.cost_ratio["training"])
    return Figure(
        "What it costs",
        [
            Panel(
                "",
                [*marks, Rule(1, "x", dash="solid")],
                "× NoPE",
                x_log=True,
                y_names=names,
                x_ticks=[1, 1.5, 2, 3, 5, 10, 20, 50],
                y_down=True,
            )
        ],
        "Time and memory of a layer as multiples of the layer without positions. Training takes"
        f" {cheapest.cost_ratio['training']:.2g} × the time of NoPE with {cheapest.name}, and"
        f" {dearest.cost_ratio['training']:.2g} × with {dearest.name}, the slowest.",
        height=max(120, 24 * len(names)),
    )


def properties(result: Comparison) -> Figure:
    """Properties by encoding: holds, fails, or not applicable."""
    names = [measured.name for measured in result.encodings]
    asked = list(result.encodings[0].properties)
    kinds: Sequence[tuple[bool | None, str, str, Marker, float]] = (
        (True, "holds", BLUE, "circle", 11),
        (False, "does not", GREY, "x", 6),
        (None, "not applicable", GREY, "dash", 6),
    )
    verdicts = [[m.properties[name].holds for name in asked] for m in result.encodings]
    marks = []
    for holds, name, colour, marker, size in kinds:
        places = [(x, y) for y, row in enumerate(verdicts) for x, v in enumerate(row) if v is holds]
        x, y = zip(*places, strict=True) if places else ((), ())
        marks.append(Points(x, y, name, colour, marker, size))
    held = {
        m.name: sum(v is True for v in row)
        for m, row in zip(result.encodings, verdicts, strict=True)
    }
    largest = max(held.values())
    panel = Panel("", marks, x_names=[label(name) for name in asked], y_names=names, y_down=True)
    word = {True: "holds", False: "does not", None: "not applicable"}
    return Figure(
        "What holds",
        [panel],
        f"{len(asked)} properties of {len(names)} encodings. Most hold for"
        f" {_listed([name for name, count in held.items() if count == largest])}: {largest}.",
        height=max(120, 22 * len(names)),
        listed=Table(
            ["encoding", *map(label, asked)],
            [[name, *(word[v] for v in row)] for name, row in zip(names, verdicts, strict=True)],
        ),
    )


def _plain(result: Comparison) -> Curve | None:
    return next((m.curve for m in result.encodings if m.slug == "nope"), None)


def _curve(title: str, measured: Measured, plain: Curve | None) -> Panel:
    others = slice(1, None)  # a token is most like itself, which would flatten the rest
    curve = measured.curve
    x = curve.distance[others]
    marks = [
        Band(x, curve.low[others], curve.high[others], "80 % of the scores"),
        Line(x, curve.mean[others], "mean score"),
    ]
    if plain and measured.slug != "nope":
        marks.insert(1, Line(x, plain.mean[others], "without positions", GREY, "dash", width=1))
    return Panel(title, marks, "tokens back", "score")


def _falls(curve: Curve) -> bool:
    """True if the nearest quarter scores higher than the farthest, by more than noise."""
    mean, count = curve.mean[1:], len(curve.mean) - 1
    quarter = max(1, count // 4)
    near, far = sum(mean[:quarter]) / quarter, sum(mean[-quarter:]) / quarter
    spread = (sum(curve.high[1:]) - sum(curve.low[1:])) / count
    return near - far > 0.05 * spread


def _positions(title: str, rows: list[list[float]]) -> Panel:
    channels = [list(channel) for channel in zip(*rows, strict=True)]
    shown = heat(channels, signed=True, bar=False)
    return Panel(f"{title} (±{shown.span[1]:.3g})", [shown], "position", "channel", y_down=True)


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
