"""Figures of many encodings side by side."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from posenc.analysis.rounding import BLIND
from posenc.lab.compare.comparison import Comparison, Measured, OrderChange
from posenc.show.report.drawing.figure import (
    BLUE,
    GREEN,
    GREY,
    VERMILION,
    Figure,
    FigureNumbers,
    Mark,
    Marker,
    Panel,
    Values,
)
from posenc.show.report.drawing.marks import Band, Line, Points, Rule, heat
from posenc.show.report.kinds import FILES_ONLY, Sections
from posenc.show.report.kinds.comparison import phrases as findings
from posenc.show.report.phrases import label

UNTRAINED = "untrained"


def make_figures(result: Comparison) -> Sections:
    return {
        FILES_ONLY: {"properties": properties(result)},  # the page has a table of them
        "positions": {"rows": rows(result)},
        "distance": {"curves": curves(result)},
        "ordered": {"order": order(result)},
        "cost": {"costs": costs(result), "lengths": lengths(result)},
    } | cards(result)


def cards(result: Comparison) -> Sections:
    """Return a section for each encoding of a comparison, with one figure."""
    return {
        f"{measured.slug}-card": {f"{measured.slug}-figure": card(result, measured)}
        for measured in result.encodings
    }


def titled(measured: Measured) -> str:
    """Return the name of an encoding, marked as untrained if its parameters are random."""
    return f"{measured.name}, {UNTRAINED}" if measured.untrained else measured.name


def curves(result: Comparison) -> Figure | None:
    """Draw the mean score that each encoding adds, against the distance.

    The encodings of a family have the same y scale.
    """
    shown = [measured for measured in result.encodings if measured.slug != "nope"]
    if not shown:
        return None
    panels = [_effect(titled(m), m, _scale(m, shown)) for m in shown]
    near = [m.name for m in shown if not m.untrained and _favours_near(m)]
    learn = " Untrained encodings are drawn with random parameters."
    return Figure(
        "Effect on scores, by distance",
        panels,
        f"Scores minus those of the same words without positions, for {len(panels)} encodings. Of"
        f" those that learn nothing, these raise near tokens above far ones: {_listed(near)}."
        + learn
        * any(m.untrained for m in shown),
        columns=4,
        height=130,
    )


def rows(result: Comparison) -> Figure | None:
    """Draw each encoding as a small heat map: its position vectors, or its effect on scores."""
    sizes = {len(measured.rows[0]) for measured in result.encodings if measured.rows}
    panels = []
    for measured in result.encodings:
        wide = f", {len(measured.rows[0])} channels" if measured.rows and len(sizes) > 1 else ""
        if panel := _portrait(titled(measured) + wide, measured):
            panels.append(replace(panel, bare=True, x_title="", y_title=""))
    if not panels:
        return None
    channels = "channels" if len(sizes) != 1 else f"{min(sizes)} channels"
    return Figure(
        "Each encoding as a picture",
        panels,
        f"{len(panels)} encodings. Vectors: position →, {channels} ↓. Biases: tokens back →, heads"
        " ↓. Others, what they add to scores: keys →, queries ↓. Orange is more, blue is less, the"
        " paper 0; (±) is the value of the full colour.",
        columns=8,
        height=60,
    )


def card(result: Comparison, measured: Measured) -> Figure:
    """Draw one encoding in detail: its position vectors, and its effect on scores."""
    portrait = _portrait("What it looks like", measured)
    panels = [portrait] if portrait else []
    panels.append(_effect("What it adds to scores", measured, None))
    raises = "raises" if _favours_near(measured) else "does not raise"
    return Figure(
        titled(measured),
        panels,
        f"Scores minus those of the same words without positions: on average it {raises} near"
        " tokens above far ones.",
        columns=2,
        height=240,
    )


def order(result: Comparison) -> Figure:
    """Draw how much outputs change when words are shuffled or repeated."""
    ranked = sorted(result.encodings, key=lambda m: (m.untrained, -m.shuffle.plain))
    names = [titled(measured) for measured in ranked]
    fixed = sum(not measured.untrained for measured in ranked)
    tests: dict[str, Sequence[OrderChange | None]] = {
        "a shuffled sentence": [m.shuffle for m in ranked]
    }
    if any(measured.duplicate for measured in ranked):
        tests["two occurrences of a word"] = [m.duplicate for m in ranked]
    values = [v for row in tests.values() for o in row if o for v in (o.plain, o.causal)]
    panels = []
    for title, orders in tests.items():
        plain, causal = (
            [100 * getattr(change_of, kind) if change_of else None for change_of in orders]
            for kind in ("plain", "causal")
        )
        y = range(len(names))
        pairs = zip(plain, causal, strict=True)
        marks: list[Mark] = [
            Line([v for pair in pairs for v in (*pair, None)], _as_segments(y), "", GREY, width=1),
            Points(plain, y, "no mask"),
            Points(causal, y, "causal mask", VERMILION, "diamond"),
        ]
        if 0 < fixed < len(names):
            marks.append(Rule(fixed - 0.5, "y"))
        span = (0, 105 * max(values))
        panels.append(
            Panel(title, marks, "change of the output, %", x_range=span, y_names=names, y_down=True)
        )
    blind = [m.name for m in result.encodings if m.shuffle.plain < BLIND]
    without = f"Without a mask these cannot: {_listed(blind)}" if blind else "All of them do"
    return Figure(
        "Does it see the order?",
        panels,
        "How much changes when a sentence is shuffled, and between two occurrences of a word."
        f" {without}.",
        columns=2,
        height=max(120, 20 * len(names)),
    )


def costs(result: Comparison) -> Figure:
    """Draw time and memory as multiples of NoPE, with intervals for times."""
    names = [titled(measured) for measured in result.encodings]
    y = range(len(names))
    marks: list[Mark] = [Rule(1, "x", dash="solid")]
    kinds: Sequence[tuple[str, str, str, Marker]] = (
        ("forward", "time, forward", BLUE, "circle"),
        ("training", "time, training", VERMILION, "diamond"),
        ("training_memory", "memory, training", GREEN, "square"),
    )
    for key, name, colour, marker in kinds:
        if key != "training_memory":
            intervals = [getattr(m.cost, f"{key}_ratio") for m in result.encodings]
            x = [v for ratio in intervals for v in (ratio.low, ratio.high, None)]
            marks.append(Line(x, _as_segments(y), "", colour, width=4))
        ratios = [m.cost_ratio[key] for m in result.encodings]
        marks.append(Points(ratios, y, name, colour, marker))
    others = [m for m in result.encodings if m.slug != "nope"] or result.encodings
    cheapest, *_, dearest = sorted(2 * others, key=lambda m: m.cost_ratio["training"])
    least, most = (findings.times(m.cost_ratio["training"]) for m in (cheapest, dearest))
    return Figure(
        "What it costs",
        [
            Panel(
                "",
                marks,
                "× NoPE",
                x_log=True,
                y_names=names,
                x_ticks=[0.2, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200],
                y_down=True,
            )
        ],
        "Time and memory of a layer as multiples of the layer without positions; bars are the"
        " intervals of the medians. Training takes"
        f" {least} the time of NoPE with {cheapest.name}, and {most} with {dearest.name}, the"
        " slowest.",
        height=max(120, 22 * len(names)),
    )


def lengths(result: Comparison) -> Figure | None:
    """Draw time and memory by length, as multiples of those of NoPE at the same length."""
    shown = [measured for measured in result.encodings if measured.slug != "nope"]
    if not shown:
        return None
    tokens = [measured.tokens for measured in result.nope_by_length]
    panels, drawn, rows = [], [], []
    for measured in shown:
        ratios = measured.cost_ratio_by_length
        time, low, high, memory = (
            [getattr(ratio, what) for ratio in ratios] for what in ("time", "low", "high", "memory")
        )
        marks: list[Mark] = [
            Rule(1, "y", dash="solid"),
            Band(tokens, low, high, "interval of the median"),
            Line(tokens, time, "time", marker="circle"),
            Line(tokens, memory, "memory", GREEN, "dash"),
        ]
        panels.append(Panel(measured.name, marks, "tokens", "× NoPE", x_log=True, y_log=True))
        drawn.append([value for value in (*low, *high, *memory) if value is not None])
        for ratio in ratios:
            numbers = ratio.time, ratio.low, ratio.high, ratio.memory
            cells = ["refused" if value is None else f"{value:.3g}" for value in numbers]
            rows.append([measured.name, f"{ratio.tokens:,}", *cells])
    usual = 5 * median(max(values) for values in drawn)
    shared = [value for values in drawn if max(values) <= usual for value in values]
    spans = [shared if max(values) <= usual else values for values in drawn]
    own = [p.title for p, span in zip(panels, spans, strict=True) if span is not shared]
    scale = f" All share a scale but {', '.join(own)}." * bool(own)
    return Figure(
        "Cost against length",
        [
            replace(panel, y_range=(0.8 * min(span), 1.25 * max(span)), x_ticks=tokens[::2])
            for panel, span in zip(panels, spans, strict=True)
        ],
        f"Time and memory of a forward pass of {tokens[0]:,} to {tokens[-1]:,} tokens, as multiples"
        " of the layer without positions at that length; bands are the intervals of the medians."
        f"{scale} {findings.growth(result)}",
        columns=6,
        height=96,
        listed=FigureNumbers(["encoding", "tokens", "time", "low", "high", "memory"], rows),
    )


def properties(result: Comparison) -> Figure:
    """Draw the properties of each encoding: holds, fails, or not applicable."""
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
        "Properties",
        [panel],
        f"{len(asked)} properties of {len(names)} encodings. Most hold for"
        f" {_listed([name for name, count in held.items() if count == largest])}: {largest}.",
        height=max(120, 22 * len(names)),
        listed=FigureNumbers(
            ["encoding", *map(label, asked)],
            [[name, *(word[v] for v in row)] for name, row in zip(names, verdicts, strict=True)],
        ),
    )


def _effect(title: str, measured: Measured, span: tuple[float, float] | None) -> Panel:
    """Draw the score that an encoding adds, against the distance.

    The panel has the mean, and a band with 80 % of the values.

    Lines per head are drawn if the added score depends on the distance alone.
    """
    # Distance 0 is left out: its score is so high that all others would look equal
    others = slice(1, None)
    effect = measured.effect
    x = effect.distance[others]
    marks: list[Mark] = [
        Band(x, effect.low[others], effect.high[others], "80 % of what is added"),
        Line(x, effect.mean[others], "mean"),
    ]
    if effect.by_distance_alone and len(effect.heads) > 1:
        fan = [Line(x, head[others], "each head", VERMILION, width=1) for head in effect.heads]
        marks = [*fan, Line(x, effect.mean[others], "mean")]
    return Panel(title, marks, "tokens back", "added", y_range=span)


def _scale(measured: Measured, shown: Sequence[Measured]) -> tuple[float, float] | None:
    """Return the y range shared by an encoding's family, or None if the encoding is an outlier.

    An outlier's effect spans more than five times the family's median.
    """
    ends = {
        m.slug: (min(m.effect.low[1:], default=0), max(m.effect.high[1:], default=0))
        for m in shown
        if m.family == measured.family
    }
    widths = {slug: high - low for slug, (low, high) in ends.items()}
    usual = 5 * median(widths.values())
    if widths[measured.slug] > usual:
        return None
    kept = [ends[slug] for slug, width in widths.items() if width <= usual]
    low, high = min(low for low, _ in kept), max(high for _, high in kept)
    room = 0.04 * (high - low) or 0.5
    return low - room, high + room


def _favours_near(measured: Measured) -> bool:
    """Test whether the encoding adds a clearly higher score for near keys than for far keys.

    Near and far are the nearest and the farthest quarter of distances.
    """
    mean, count = measured.effect.mean[1:], len(measured.effect.mean) - 1
    quarter = max(1, count // 4)
    near, far = sum(mean[:quarter]) / quarter, sum(mean[-quarter:]) / quarter
    spread = (sum(measured.curve.high[1:]) - sum(measured.curve.low[1:])) / count
    return near - far > 0.05 * spread


def _portrait(title: str, measured: Measured) -> Panel | None:
    """Draw an encoding as a heat map of its vectors, scores or biases.

    Returns None for an encoding that ignores positions.
    """
    effect = measured.effect
    if measured.rows:
        cells: Sequence[Values] = [list(channel) for channel in zip(*measured.rows, strict=True)]
        axes = "position", "channel"
    elif measured.added:
        cells, axes = measured.added, ("key", "query")
    elif any(value for head in effect.heads for value in head):
        cells, axes = effect.heads, ("tokens back", "head")
    else:
        return None
    shown = heat(cells, signed=True, bar=False)
    end = f"{shown.span[1]:.0f}" if shown.span[1] >= 100 else f"{shown.span[1]:.2g}"
    return Panel(f"{title} (±{end})", [shown], *axes, y_down=True)


def _as_segments(values: Sequence[float]) -> list[float]:
    """Repeat each value three times: for the start and the end of a line, and for a gap."""
    return [value for value in values for _ in range(3)]


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
