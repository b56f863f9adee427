"""Figures of a study: outcomes by length, published outcomes, every seed, and contrasts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from posenc.lab.study.analysis import Contrast, Row
from posenc.lab.study.published import PublishedCurves
from posenc.lab.study.statistics import Interval
from posenc.show.report.drawing.figure import (
    BLUE,
    GREY,
    VERMILION,
    Figure,
    FigureNumbers,
    Mark,
    Panel,
    Style,
    style,
)
from posenc.show.report.drawing.marks import Line, Points, Rule
from posenc.show.report.kinds.study import phrases

PERCENT = -3.0, 103.0  # per cent, with room for marks at 0 and 100
PERCENT_WITH_NAMES = -3.0, 115.0  # the same with room for the names of rules
TICKS = 0, 20, 40, 60, 80, 100


def lengths(rows: Sequence[Row], shape: PublishedCurves | None = None) -> Figure | None:
    """Draw the outcomes of a task by text length, with published curves beside them.

    Returns None if there are no outcomes.
    """
    drawn = [row for row in rows if row.curve]
    if not drawn:
        return None
    names = [row.encoding for row in rows] + [*(shape.curves if shape else ())]
    looks = {name: style(n) for n, name in enumerate(dict.fromkeys(names))}
    panels = [_outcomes_panel(drawn, looks, "this study" if shape else "")] + (
        [_published_panel(shape, looks)] if shape else []
    )
    return Figure(
        f"{rows[0].task}: outcomes by length",
        panels,
        _unbroken(
            " ".join([_outcomes_in_words(drawn), *([_published_in_words(shape)] if shape else [])])
        ),
        columns=len(panels),
        height=330,
        listed=_listed(drawn, shape),
    )


def _outcomes_panel(rows: Sequence[Row], looks: Mapping[str, Style], title: str) -> Panel:
    marks: list[Mark] = []
    for row in rows:
        look, scale = looks[row.encoding], _scale(row.bits)
        points = [(n, scale * value) for n, values in row.curve.items() for value in values]
        marks.append(
            Line([*row.means], [scale * v for v in row.means.values()], row.encoding, **look)
        )
        x, y = zip(*points, strict=True)
        marks.append(Points(x, y, row.encoding, look["colour"], size=5))
    places = [n for row in rows for n in row.curve]
    trained = _trained(rows)
    rules = [] if trained is None else _rules(trained, max(places))
    far = trained is not None and max(places) > 2 * trained
    return Panel(
        title,
        [*marks, *rules],
        "length n",
        phrases.unit(rows[0]),
        x_log=far,
        x_ticks=_doublings(trained, places) if far and trained else (),
        y_range=None if rows[0].bits else PERCENT_WITH_NAMES,
        y_ticks=() if rows[0].bits else TICKS,
    )


def _published_panel(shape: PublishedCurves, looks: Mapping[str, Style]) -> Panel:
    marks: list[Mark] = []
    for name, points in shape.curves.items():
        at = [point.length for point in points]
        marks.append(Line(at, [point.value for point in points], name, **looks[name]))
        for point in points:
            if point.deviation:
                low, high = point.value - point.deviation, point.value + point.deviation
                ends = [point.length] * 2
                marks.append(Line(ends, [low, high], name, looks[name]["colour"], width=1))
    places = [point.length for points in shape.curves.values() for point in points]
    far = max(places) > 2 * shape.trained
    return Panel(
        f"published: {shape.paper}, {shape.setting}",
        [*marks, *_rules(shape.trained, max(places))],
        "length n",
        shape.measure,
        x_log=far,
        x_ticks=_doublings(shape.trained, places) if far else (),
        y_log=not shape.percent,
        y_range=PERCENT_WITH_NAMES if shape.percent else None,
        y_ticks=TICKS if shape.percent else (20, 50, 100, 200),
    )


def _rules(trained: int, longest: float) -> list[Rule]:
    twice = [Rule(2 * trained, "x", "2 L")] if longest >= 2 * trained else []
    return [Rule(trained, "x", f"L = {trained}"), *twice]


def _doublings(trained: int, places: Sequence[int]) -> list[float]:
    """Return axis ticks at the trained length times powers of two.

    Ticks outside of the tested lengths are left out.
    """
    steps = [trained * 2.0**power for power in range(-4, 12)]
    return [n for n in steps if min(places) <= n <= max(places)]


def _outcomes_in_words(rows: Sequence[Row]) -> str:
    """Name encodings that did not learn the task, and state means near twice the trained length."""
    sentences = [f"Lines are means over {phrases.seeds(rows)}, points are single seeds."]
    if all(len(row.seeds) == 1 for row in rows):
        sentences = ["One seed of each encoding."]
    bits, trained = rows[0].bits, _trained(rows)
    if not bits:
        weak = [row for row in rows if row.undertrained]
        listed = ", ".join(
            f"{row.encoding} (in {len(row.undertrained)} of {len(row.seeds)} seeds)" for row in weak
        )
        within = f"At n = {trained}, " if trained else ""
        if weak:
            sentences.append(f"{within}fewer than 95 % of the answers are right with {listed}.")
        elif trained and all(row.in_range is not None for row in rows):
            sentences.append(f"{within}each seed has 95 % of its answers right, or more.")
    twice = 2 * (trained or 0)
    place = max((n for n in rows[0].means if (trained or 0) < n <= twice), default=0)
    means = [row.means[place] for row in rows if place in row.means]
    if len(means) < 2:
        return " ".join(sentences)
    ends = " to ".join(phrases.share(end, bits) for end in (min(means), max(means)))
    where = f"At n = {place}" + (", twice the trained length," if place == twice else "")
    return " ".join([*sentences, f"{where} the means go from {ends}."])


def _published_in_words(shape: PublishedCurves) -> str:
    bars = any(point.deviation for points in shape.curves.values() for point in points)
    upright = "; upright strokes are standard deviations over seeds" if bars else ""
    return (
        f"Beside it, {shape.paper}, arXiv:{shape.arxiv} ({shape.source}), {shape.setting}: only the"
        f" shape can be compared{upright}."
    )


def _listed(rows: Sequence[Row], shape: PublishedCurves | None) -> FigureNumbers:
    """List the mean and the value of each seed, for each encoding and length."""
    cells = []
    for row in rows:
        for n, values in row.curve.items():
            cells.append([row.encoding, str(n), *_numbers(row.means[n], values, row.bits)])
    for name, points in shape.curves.items() if shape else ():
        for point in points:
            deviation = "" if point.deviation is None else f"± {point.deviation:g}"
            place = [f"{name}, published", str(point.length)]
            cells.append([*place, f"{point.value:g}", deviation])
    return FigureNumbers(["encoding", "length", phrases.unit(rows[0]), "each seed"], cells)


def seeds(rows: Sequence[Row], metric: str) -> Figure | None:
    """Draw the outcome of every seed of a task, with mean and confidence interval.

    Returns None if there are no outcomes.
    """
    drawn = [Estimate(row.encoding, row.value, row.by_seed) for row in rows if row.value]
    if not drawn:
        return None
    bits, where = rows[0].bits, phrases.span(metric)
    says = f"Every seed over {where}, the mean, and where it lies with 95 %."
    widest = max(drawn, key=lambda estimate: max(estimate.by_seed) - min(estimate.by_seed))
    least, most = min(widest.by_seed), max(widest.by_seed)
    if all(len(estimate.by_seed) == 1 for estimate in drawn):
        says += " With one seed, the interval is over prompts alone."
    if least < most:
        ends = " to ".join(phrases.share(end, bits) for end in (least, most))
        says += f" Seeds of {widest.name} differ most, from {ends}."
    title = f"{phrases.unit(rows[0])}, {where}"
    return Figure(
        f"{rows[0].task}: every seed",
        [_forest(drawn, title, bits, None if bits else PERCENT)],
        _unbroken(says),
        height=_height(len(drawn)),
        listed=FigureNumbers(
            ["encoding", "mean", "each seed", "95 %"], [estimate.cells(bits) for estimate in drawn]
        ),
    )


def contrasts(pairs: Sequence[Contrast], bits: bool) -> Figure | None:
    """Draw the contrasts of a task: the difference at each seed, the mean and its interval.

    Returns None if no contrast has a difference.
    """
    drawn = [
        Estimate(phrases.sides(contrast), contrast.difference, contrast.by_seed)
        for contrast in pairs
        if contrast.difference
    ]
    if not drawn:
        return None
    above = sum(estimate.interval.low > 0 for estimate in drawn)
    below = sum(estimate.interval.high < 0 for estimate in drawn)
    title = "bits saved" if bits else "difference, percentage points"
    return Figure(
        f"{pairs[0].task}: contrasts",
        [_forest(drawn, title, bits, None, Rule(0, "x", dash="solid"))],
        f"{pairs[0].task}: differences of runs that are paired by seed; right of 0 the first side"
        f" is better. Of {len(drawn)} intervals {above} lie above 0, {below} below, and"
        f" {len(drawn) - above - below} include it.",
        height=_height(sum(_over_lines(estimate.name).count("\n") + 1 for estimate in drawn)),
        listed=FigureNumbers(
            ["contrast", "difference", "each seed", "95 %"],
            [estimate.cells(bits) for estimate in drawn],
        ),
    )


@dataclass(frozen=True)
class Estimate:
    """One row of a forest plot: a name, an interval, and the value of each seed."""

    name: str
    interval: Interval
    by_seed: Sequence[float]

    def cells(self, bits: bool) -> list[str]:
        mean, seeds = _numbers(self.interval.value, self.by_seed, bits)
        return [self.name, mean, seeds, phrases.interval(self.interval, bits)]


def _forest(
    rows: Sequence[Estimate],
    title: str,
    bits: bool,
    span: tuple[float, float] | None,
    *rules: Rule,
) -> Panel:
    """Draw a forest plot: one row for each estimate, with its interval, mean and single seeds."""
    scale = _scale(bits)
    x: list[float | None] = []
    y: list[float | None] = []
    for n, row in enumerate(rows):  # None leaves a gap between the strokes of two rows
        x += [scale * row.interval.low, scale * row.interval.high, None]
        y += [n, n, None]
    seeds = [scale * value for row in rows for value in row.by_seed]
    places = [n for n, row in enumerate(rows) for _ in row.by_seed]
    means = [scale * row.interval.value for row in rows]
    marks: list[Mark] = [
        *rules,
        Line(x, y, "95 % interval", GREY, width=5),
        Points(means, range(len(rows)), "mean", VERMILION, "diamond", 11),
        Points(seeds, places, "one seed", BLUE, size=5),
    ]
    named = [_over_lines(row.name) for row in rows]
    return Panel("", marks, title, x_range=span, y_names=named, y_down=True)


def _over_lines(name: str) -> str:
    """Wrap a name into lines of 24 letters; each side of a contrast starts a new line."""
    sides = name.replace(" − ", "\n− ").split("\n")
    return "\n".join(line for side in sides for line in wrap(side, 24))


def _height(rows: int) -> int:
    return max(90, 30 * rows)


def _trained(rows: Sequence[Row]) -> int | None:
    return next((row.trained for row in rows if row.trained is not None), None)


def _scale(bits: bool) -> float:
    return 1.0 if bits else 100.0


def _unbroken(text: str) -> str:
    """Replace the space before per cent signs, so that no line starts with one."""
    return text.replace(" %", "%")


def _numbers(mean: float, by_seed: Sequence[float], bits: bool) -> tuple[str, str]:
    """Format a mean and the values of single seeds, in bits or per cent."""
    texts = [f"{value:.3f}" if bits else f"{100 * value:.1f}" for value in (mean, *by_seed)]
    return texts[0], ", ".join(texts[1:])
