"""Write the pages of the studies, such as studies/README.md, from the stored outcomes.

With --check, only report which pages are stale. The text of a study is its finding.md: the first
line is the title, and the line after "> " is the line for studies/README.md. Places in braces are
replaced by numbers:

    {copy.nope}         the metric of an encoding on a task, and its interval
    {copy.nope.in}      the mean within the trained length
    {copy.nope-rope}    a contrast of the plan: difference, interval, length, rate, seeds, Holm's p
    {seeds}             the least number of seeds of a row
    {copy.properties}   the prediction of the metric by measured properties, and a table of these
    {copy.t5 published at 1.2}          the published number at 1.2 times its trained length
    {copy.period-7 predicted}           the difference of the lengths predicted by aliasing and the
                                        other lengths

and for comparisons that are not in the plan:

    {copy.none predicted as period-7}   the same difference for a row without that period
    {copy.period-7 from 1.7 to 1.8}     the difference of one row at two lengths
    {language.fox equal to rope cropped over L…2L}  the least margin within which both are equal
    {copy.period-7 share predicted}     the least and the greatest mean at the predicted lengths
    {copy.period-7 most beyond L}       the greatest mean at a length beyond L, and that length
    {language.t5 at 4}                  the mean at 4 times the trained length, and its interval
    {language.t5 - rope at 4}           the difference there; above 0 favours the first
    {language.t5 - rope over L…2L}      the difference of means over the tested lengths up to 2 L
    {language.t5 - rope cropped at 2}   T5 that reads all, RoPE that reads only the last L tokens
    {language.t5 - rope lost at 2}      the difference of the changes from L to 2 L
    {language.learned of all}           a property's rank correlation with the outcome, and Holm's p
    {language.learned of all but sine}  the same without some encodings

    {shape-text|language.alibi at 2}    a place of another study

A study that is not complete has a pilot.md instead, for the cells that are done.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import ceil, isclose
from pathlib import Path

import torch
from torch import Tensor

from posenc.lab.study.analysis import Analysis, Contrast, Row, analyse, outcomes_graded
from posenc.lab.study.plan import MOST_SEEDS, Plan
from posenc.lab.study.published import published
from posenc.lab.study.statistics import Interval, coverage, holm, may_rank, sign_flip
from posenc.lab.study.statistics import interval as t_interval
from posenc.lab.study.store import RESULTS, RUNNING, Contents, read
from posenc.show.report.kinds.study import phrases
from posenc.support.numbers import number as short
from studies.questions import words as answers
from studies.questions.bands import read_csv, recoveries
from studies.questions.prediction import Prediction, predict
from studies.questions.repetition import Repeated, equal_cells, repetition

STUDIES = Path(__file__).parent
AGAIN = "again"  # folder of a second run of the whole plan
BANDS = "bands.csv"  # written by `python -m studies.questions bands FOLDER FOLDER/bands.csv`
NOTHING = "not measured"
PLACE = re.compile(r"\{([^{}\n]+)\}")
ROUNDING = 1e-9  # rounding error of float32 outcomes, up to which a difference counts as 0
HEAD = """\
# Studies

Each study trains small transformers that differ only in their positional encoding on texts of up
to L tokens, and tests them on longer texts. `python -m studies.findings` writes this page and the
page of each study from the stored outcomes, and a test compares the pages with the outcomes. The
folder of a study has the plan, whose hash was registered before the first training, and
`results.db`, with the outcome of every prompt. To repeat a study in another folder:

    posenc study studies/fair-text/plan.toml --out mine

`posenc results studies/fair-text` prints the table of the study `fair-text`; `--csv` and
`--parquet` export every outcome. `python studies/recompute.py studies/fair-text` recomputes means,
intervals and tests from `results.db`, with numpy alone and without any code of posenc.

- Every number holds for tiny models, at the stated text lengths, learning rates and training
  steps. "No difference shown" is not equality.
- Tables have rows for two simple baselines on longer texts. In a *cropped* row, the same model
  reads only the last L tokens. In a *windowed* row, each token attends at most L tokens back.
- A seed counts as trained if 95 % of its answers are right at n = L, where n is the length of a
  tested text. Rows with a trained length of their own must reach 95 % at this length.
- Intervals are t intervals for 95 % over seeds and prompts; all seeds are tested on the same
  prompts. The intervals for a changed frequency band are over seeds only, and the intervals for a
  single seed are over prompts only. We tested the intervals in several simulations; in some of
  them, only a quarter of the seeds learn the task. In the worst simulation, the intervals contain
  the true value in {held}.
- If a study is not complete, its page states "n of m cells"; a cell is one training run. The
  command `posenc study PLAN --out FOLDER` continues a study.

[A paper](../docs/paper/paper.md) combines the findings of some studies. To test your own encoding,
use [the arena](../docs/studies.md#the-arena), which has [a board](board/v2.md).

## One line for each study

A difference above 0 favours the encoding that is named first. Points are percentage points of the
share of texts with all answers right; numbers without a unit are bits per character. Another page
lists [older studies](older.md), which cannot answer their questions.

"""
OLDER = ("shape-copy", "shape-reverse", "pairs-copy", "properties-text", "masked")
WIDEST = 0.9  # share that an interval may cover
HEAD_OF_OLDER = """\
# Older studies

**None of these studies shows which encoding is better beyond L.** The studies have no positive
control (a model which shows that a gain beyond L is possible), and each encoding was trained at a
single learning rate. The results are kept, so that later results can be compared with them. Each
study has further limits:

- `shape-copy`, `shape-reverse`: words may repeat within a text, so that a word does not determine
  the word after it. Nothing follows for texts of unique words, or for another learning
  rate. T5 had the bias of an encoder.
- `pairs-copy`: neither RoPE that the hypothesis compares copies a text at the measured length, and
  models without rotation were not trained until 95 % of their answers at n = L were right. The
  plan has one learning rate and few training steps.
- `properties-text`: the models predict each letter from the last few letters, so no encoding could
  gain from longer texts. Three seeds are too few for a ranking.
- `masked`: within L, the models with learned positions, one side of each contrast, have not learned
  the task.

A line for each older study, as on [the page of all other studies](README.md):

"""


def number(value: float, bits: bool) -> str:
    """Format an outcome: "2.374" bits, or "66 %"."""
    return f"{value:.3f}" if bits else f"{100 * value:.0f} %"


def interval(value: Interval | None, bits: bool, sign: str = "") -> str:
    """Format an interval: "66 % [58, 73]", or as a difference "+32 points [20, 43]".

    An interval of nearly all shares, as two seeds may have, excludes nothing and is left out.
    """
    if value is None:
        return NOTHING
    if not bits and not sign and value.high - value.low > WIDEST:
        return number(value.value, bits)
    factor, digits = (1, 3) if bits else (100, 0)
    of = "" if bits else " points" if sign else " %"
    low, high = (f"{factor * end:{sign}.{digits}f}" for end in (value.low, value.high))
    return f"{factor * value.value:{sign}.{digits}f}{of} [{low}, {high}]"


def contrast(one: Contrast, result: Analysis) -> str:
    """Format a planned contrast with its conditions; an undecided contrast has the reason."""
    if one.difference is None:
        return one.verdict
    p = [] if one.adjusted is None else [f"p = {one.adjusted:.2g} by Holm"]
    verdict = phrases.verdict(one)
    against = [] if one.decided else [verdict]
    own = [name.rpartition(" at ")[2] for name in one.terms if " at " in name]
    where = f"n = {' and '.join(own)}" if own else phrases.span(result.metric)
    bits = phrases.unit_of(one, phrases.in_bits(result.rows))
    return difference(one.difference, one.by_seed, bits, where, result, [*p, *against])


def difference(
    value: Interval,
    by_seed: Sequence[float],
    bits: bool,
    where: str,
    result: Analysis,
    more: list[str],
) -> str:
    """Format a difference: "+32 points [+29, +36] (1.2 L, rate 0.001; above 0 in 6 of 6 seeds)"."""
    one = None if result.profile is None else f"rate {short(result.profile.rate, 2)}"
    rate = f", {one or 'rates chosen at n ≤ L'}" if one or result.rates else ""
    wins = f"above 0 in {sum(x > ROUNDING for x in by_seed)} of {len(by_seed)} seeds"
    return f"{interval(value, bits, '+')} ({'; '.join([where + rate, wins, *more])})"


def places(result: Analysis) -> dict[str, str]:
    """Return the texts of all placeholders that the results of the plan can fill."""
    found = {}
    for row in result.rows:
        name = f"{row.task}.{row.encoding}"
        found[name] = interval(row.value, row.bits)
        if row.in_range is not None:
            found[f"{name}.in"] = number(row.in_range, row.bits)
    for one in result.contrasts:
        sides = map("+".join, (one.one, one.other, *(one.than or ())))
        found[f"{one.task}.{'-'.join(sides)}"] = contrast(one, result)
    found["seeds"] = str(min(len(row.seeds) for row in result.rows))
    return found


TASK = r"([\w-]+)\."
SIDE = r"(.+?)( cropped)?"  # labels may contain spaces
UNPLANNED = re.compile(rf"{TASK}{SIDE}(?: - {SIDE})? (lost )?(?:at ([\d.]+)|over L…2L)")


def at_unplanned_length(place: str, contents: Contents, result: Analysis) -> str | None:
    """Return the text of a placeholder for a length that is not planned; None for others."""
    match = UNPLANNED.fullmatch(place)
    if match is None:
        return None
    task, one, one_cropped, other, other_cropped, lost, times = match.groups()

    def by_seed(name: str, cropped: str | None) -> dict[int, Tensor]:
        row, how = row_of(result, task, name), "cropped" if cropped else None
        if row.trained is None or not row.curve:
            return {}
        far = values(contents, row, at_times(row, times) if times else beyond(row), how)
        near = values(contents, row, [row.trained], how) if lost else {}
        return {seed: vector - near.get(seed, 0) for seed, vector in far.items()}

    bits = any(row.bits for row in result.rows if row.task == task)
    first = by_seed(one, one_cropped)
    if other is None:
        return interval(t_interval([*first.values()], share=not bits), bits) if first else NOTHING
    where = f"{times} L" if times else phrases.span("area")
    sides = [one + (one_cropped or "")], [other + (other_cropped or "")]
    for planned in result.contrasts:
        same = (planned.task, [*planned.one], [*planned.other]) == (task, *sides)
        if same and not lost and where == phrases.span(result.metric):
            return contrast(planned, result)
    return unplanned(paired(first, by_seed(other, other_cropped), bits), bits, where, result)


def unplanned(apart: Mapping[int, Tensor], bits: bool, where: str, result: Analysis) -> str:
    """Format a difference that was not planned; `apart` has one number per prompt, by seed."""
    if not apart:
        return NOTHING
    means = means_of(apart)
    p = sign_flip(means)
    against = [phrases.UNDECIDED] if p >= phrases.LEVEL else []
    more = [f"p = {p:.2g}", *against, "not in the plan"]
    return difference(t_interval([*apart.values()]), means, bits, where, result, more)


def paired(one: Mapping[int, Tensor], other: Mapping[int, Tensor], bits: bool) -> dict[int, Tensor]:
    """Return the difference of two rows by seed and prompt; positive if the first is better."""
    sign = -1 if bits else 1
    return {seed: sign * (one[seed] - other[seed]) for seed in one if seed in other}


def row_of(result: Analysis, task: str, name: str) -> Row:
    (row,) = (row for row in result.rows if (row.task, row.encoding) == (task, name))
    return row


def at_times(row: Row, times: str) -> list[int]:
    assert row.trained is not None
    return [n for n in row.curve if isclose(n, round(float(times) * row.trained))]


def values(
    contents: Contents, row: Row, lengths: Sequence[int], how: str | None = None
) -> dict[int, Tensor]:
    """Return a row's outcome of each prompt by seed, averaged over some lengths."""
    found = {}
    for record in contents.records.values():
        cell = record.cell
        if (cell.task, cell.name) == (row.task, row.encoding) and cell.seed <= MOST_SEEDS:
            graded = outcomes_graded(record, how)
            texts = [graded[n].values.double() for n in lengths]
            found[cell.seed] = torch.stack(texts).mean(0)
    return {seed: found[seed] for seed in row.seeds}


EQUALITY = re.compile(TASK + SIDE + " equal to " + SIDE + r" over L…2L")


def equality(place: str, contents: Contents, result: Analysis) -> str | None:
    """Return the text of a placeholder for the equality of two rows; None for others."""
    match = EQUALITY.fullmatch(place)
    if match is None:
        return None
    task, one, one_cropped, other, other_cropped = match.groups()
    rows = row_of(result, task, one), row_of(result, task, other)
    hows = ("cropped" if cropped else None for cropped in (one_cropped, other_cropped))
    if not all(row.seeds for row in rows):
        return NOTHING
    sides = [values(contents, row, beyond(row), how) for row, how in zip(rows, hows, strict=True)]
    apart = paired(sides[0], sides[1], rows[0].bits)
    found = t_interval([*apart.values()], level=0.90)
    margin = ceil(1e3 * max(abs(found.low), abs(found.high))) / 1e3
    return (
        f"equal within {margin:.3f} bits ({phrases.span('area')}; two one-sided t tests, 5 %;"
        f" {len(apart)} seeds; not in the plan)"
    )


TWO_LENGTHS = re.compile(TASK + r"(\S+) from ([\d.]+) to ([\d.]+)")


def difference_of_lengths(place: str, contents: Contents, result: Analysis) -> str | None:
    """Return the text of a placeholder for a difference between two lengths; None for others."""
    match = TWO_LENGTHS.fullmatch(place)
    if match is None:
        return None
    row = row_of(result, match[1], match[2])
    if row.trained is None or not row.seeds:
        return NOTHING
    near, far = (values(contents, row, at_times(row, times)) for times in match.groups()[2:])
    where = f"{match[3]} L against {match[4]} L"
    return unplanned(paired(near, far, row.bits), row.bits, where, result)


ALIASING = re.compile(TASK + r"(\S+) (predicted(?: as \S+)?|share predicted|most beyond L)")
PERIOD = re.compile(r"period-(\d+)")  # label of a row with four pairs of period P in tokens


def aliasing(place: str, contents: Contents, result: Analysis) -> str | None:
    """Return the text of a placeholder for the planned test of aliasing; None for others.

    The plan predicts that a text of n > L words is copied better if n − P is a trained length, from
    1 to L. The test is the mean over these n minus the mean over the others beyond L, paired by
    seed, with Holm over all periods.
    """
    match = ALIASING.fullmatch(place)
    if match is None:
        return None
    task, name, kind = match.groups()
    row = row_of(result, task, name)
    if row.trained is None or not row.seeds:
        return NOTHING
    far = [n for n in row.curve if n > row.trained]
    if kind == "share predicted":
        shares = [row.means[n] for n in predicted_lengths(row, name)]
        ends = dict.fromkeys(number(end(shares), row.bits) for end in (min, max))
        return " to ".join(ends)
    if kind == "most beyond L":
        best = max(far, key=lambda n: row.means[n])
        return f"{number(row.means[best], row.bits)} at n = {best}"
    period = kind.removeprefix("predicted as ") if " as " in kind else name
    inside = predicted_lengths(row, period)
    where = f"n from {inside[0]} to {inside[-1]} against the others from {far[0]} to {far[-1]}"
    apart = predicted_by_seed(contents, row, period)
    if period != name:
        return unplanned(apart, row.bits, where, result)
    rows = [x for x in result.rows if x.task == task and PERIOD.fullmatch(x.encoding)]
    tests = {x.encoding: means_of(predicted_by_seed(contents, x, x.encoding)) for x in rows}
    # A row without seeds counts as a test too, so that p is adjusted for all planned tests
    adjusted = holm({name: sign_flip(x) if x else 1.0 for name, x in tests.items()})
    against = [phrases.UNDECIDED] if adjusted[name] >= phrases.LEVEL else []
    if not may_rank(len(apart)):
        against = [f"{len(apart)} seeds: no ranking claims"]
    more = [f"p = {adjusted[name]:.2g} by Holm over {len(rows)}", *against]
    more += filter(None, [phrases.note(row)])
    whole = t_interval([*apart.values()])
    return difference(whole, means_of(apart), row.bits, where, result, more)


def means_of(by_seed: Mapping[int, Tensor]) -> list[float]:
    return [vector.mean().item() for vector in by_seed.values()]


def predicted_lengths(row: Row, period: str) -> list[int]:
    """Return the tested lengths above L that equal a trained length plus the period P."""
    match = PERIOD.fullmatch(period)
    assert match
    assert row.trained
    phase = range(int(match[1]) + 1, int(match[1]) + row.trained + 1)
    return [n for n in row.curve if n in phase and n > row.trained]


def predicted_by_seed(contents: Contents, row: Row, period: str) -> dict[int, Tensor]:
    """Return the outcomes at predicted lengths minus those at other lengths, by seed."""
    if row.trained is None or not row.seeds:
        return {}
    inside = predicted_lengths(row, period)
    others = [n for n in row.curve if n > row.trained and n not in inside]
    near, far = values(contents, row, inside), values(contents, row, others)
    return {seed: near[seed] - far[seed] for seed in row.seeds}


def beyond(row: Row) -> list[int]:
    """Return the tested lengths from above L up to 2 L, where L is the trained length."""
    assert row.trained is not None
    return [n for n in row.curve if row.trained < n <= 2 * row.trained]


PUBLISHED = re.compile(TASK + r"(\S+) published at ([\d.]+)")


def as_published(place: str) -> str | None:
    """Return the text of a placeholder for a published number; None for others."""
    match = PUBLISHED.fullmatch(place)
    shape = published(match[1]) if match else None
    if match is None or shape is None:
        return None
    at = float(match[3]) * shape.trained
    (value,) = (point.value for point in shape.curves[match[2]] if point.length == round(at))
    return f"{value:g} %" if shape.percent else f"{value:g}"


PROPERTY = re.compile(TASK + r"(\w+) of all(?: but (.+))?")


def property_alone(place: str, contents: Contents, result: Analysis) -> str | None:
    """Return the text of a placeholder for a property's rank correlation; None for others."""
    match = PROPERTY.fullmatch(place)
    if match is None:
        return None
    task, name, without = match.groups()
    out = (without or "").split()
    kept = [row.encoding for row in result.rows if row.encoding not in out]
    (found,) = predict(contents, result.only([task], kept))
    (effect,) = (effect for effect in found.effects if effect.property == name)
    return f"{effect.correlation:+.2f}, p = {effect.adjusted:.2g} by Holm"


def table(rows: list[Row], metric: str) -> Iterator[str]:
    """Yield a Markdown table of results: the metric, and the outcome at each length from L on."""
    others = lengths(rows, metric)
    heads = ["n ≤ L", phrases.span(metric)]
    heads += [f"n = {n}" for n in others] + [phrases.span("area")] * (metric != "area")
    heads += ["seeds", "parameters", "ms a step"]
    yield f"| {rows[0].task} | {' | '.join(heads)} | |"
    yield f"|---|{'--:|' * len(heads)}---|"
    for row in rows:
        cells = ["" if row.in_range is None else number(row.in_range, row.bits)]
        cells += [interval(row.value, row.bits)]
        cells += [number(row.means[n], row.bits) if n in row.means else "" for n in others]
        if metric != "area":
            cells += [interval(row.area, row.bits)]
        cells += [str(len(row.seeds)), "" if row.parameters is None else f"{row.parameters:,}"]
        cells += ["" if row.seconds is None else f"{1e3 * row.seconds:.0f}"]
        yield f"| {' | '.join([row.encoding, *cells])} | {phrases.note(row)} |"


def lengths(rows: list[Row], metric: str) -> list[int]:
    """Return all tested lengths from L on, except the length at which the metric is measured.

    All are listed, because a ranking at one length may differ at the next.
    """
    trained = next((row.trained for row in rows if row.trained), 0)
    at = 0 if metric == "area" else round(float(metric.removeprefix("at ")) * trained)
    return sorted({n for row in rows for n in row.curve if n >= trained} - {at})


def property_table(found: Prediction) -> Iterator[str]:
    heads = "property", f"rank correlation with {phrases.span(found.metric)}", "p by Holm"
    yield f"\n| {found.task}: {' | '.join(heads)} | holds for | does not hold for |"
    yield "|---|--:|--:|---|---|"
    for one in found.effects:
        yield f"| {' | '.join(answers.effect(one))} |"
    yield f"\n{answers.ALIKE}"


def band_tables(path: Path) -> Iterator[str]:
    found = recoveries(read_csv(path))
    for name, length in dict.fromkeys((one.encoding, one.length) for one in found):
        rows = [one for one in found if (one.encoding, one.length) == (name, length)]
        yield f"\nShare of the bits lost by `{name}` at {length} tokens that each band of pairs"
        yield f"recovers ([each swap]({path.name}); mean over {len(rows[0].by_seed)} seeds of the"
        yield "share of the seed's own loss):\n"
        yield f"| pairs | {' | '.join(answers.WAYS.values())} |"
        yield "|---|--:|--:|"
        for row in answers.by_band(rows):
            yield f"| {' | '.join(row)} |"


def unfinished_page(folder: Path) -> Iterator[str]:
    """Yield the page of an incomplete study, whose finished runs count as a pilot only."""
    plan = Plan.read(folder / "plan.toml")
    yield f"# {title_of(folder)}\n"
    yield (f"[plan](plan.toml), registered as `{plan.digest[:16]}…`; {progress(folder, plan)}.\n")
    yield f"Hypothesis, as registered, not a finding: *{plan.hypothesis}*"
    if plan.positive:
        yield f"\nPositive control: {plan.positive}. Negative control: {plan.negative}."
        yield f"\nResult that would withdraw the claim, as registered: {plan.withdraw}"
    yield from (f"\nKnown before the plan, as registered: {what}" for what in plan.pilots)
    if not (folder / "pilot.md").exists():
        return
    contents = read(folder)
    result = analyse(contents)
    result = replace(result, rows=[row for row in result.rows if row.seeds])
    known, _ = fill_places(folder, text := (folder / "pilot.md").read_text(), contents, result)
    yield f"\n**Pilot, not evidence.** Outcomes hold {phrases.conditions(result)}.\n"
    yield PLACE.sub(lambda place: known[place[1]], text.strip())
    yield from tables(result)


def tables(result: Analysis) -> Iterator[str]:
    """Yield the result table of each task, and for language models one by context length."""
    for task in dict.fromkeys(row.task for row in result.rows):
        yield ""
        rows = [row for row in (*result.rows, *result.baselines) if row.task == task]
        yield from table(rows, result.metric)
        yield from position_table(rows)


def position_table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of bits per character by the number of preceding characters, up to L."""
    groups = {row.encoding: phrases.by_position(row) for row in rows if row.positions}
    if groups:
        heads = [*next(iter(groups.values()))]
        yield f"\n| {phrases.POSITIONS} | {' | '.join(heads)} |"
        yield f"|---|{'--:|' * len(heads)}"
    for name, bits in groups.items():
        yield f"| {name} | {' | '.join(number(x, True) for x in bits.values())} |"


def progress(folder: Path, plan: Plan) -> str:
    """Describe the progress of an incomplete study: finished training runs out of all."""
    done = len(read(folder).records) if (folder / RUNNING).exists() else 0
    of = len(plan.cells())
    return f"{done} of {of} cells are done" + ": a pilot, not evidence" * bool(done)


def from_other_study(folder: Path, place: str) -> str | None:
    """Return the text of a placeholder that names another study; None for others."""
    study, _, inner = place.partition("|")
    if not inner:
        return None
    other = STUDIES / study
    contents = read(other)
    return fill_places(other, f"{{{inner}}}", contents, analyse(contents))[0][inner]


def fill_places(
    folder: Path, text: str, contents: Contents, result: Analysis
) -> tuple[dict[str, str], list[Prediction]]:
    """Return the value of each placeholder in a text, and the predictions that it mentions."""
    known = places(result)
    for place in PLACE.findall(text):
        found = (
            from_other_study(folder, place)
            or as_published(place)
            or aliasing(place, contents, result)
            or equality(place, contents, result)
            or at_unplanned_length(place, contents, result)
            or difference_of_lengths(place, contents, result)
            or property_alone(place, contents, result)
        )
        if found is not None:
            known[place] = found
    needed = any(place.endswith(".properties") for place in PLACE.findall(text))
    predicted = predict(contents, result) if needed else []
    known |= {f"{one.task}.properties": answers.summary(one) for one in predicted}
    unknown = {place for place in PLACE.findall(text) if place not in known}
    if unknown:
        sys.exit(f"{folder.name}: finding.md has unknown places: {', '.join(sorted(unknown))}.")
    return known, predicted


def title_of(folder: Path) -> str:
    """Return the title of a study: the first line of its finding.md, or its name."""
    text = (folder / "finding.md").read_text() if (folder / "finding.md").exists() else ""
    return text.partition("\n")[0].removeprefix("# ") or folder.name


def study_page(folder: Path) -> Iterator[str]:
    """Yield the lines of the page of a study."""
    if not (folder / RESULTS).exists():
        yield from unfinished_page(folder)
        return
    contents = read(folder)
    result = analyse(contents)
    text = (folder / "finding.md").read_text() if (folder / "finding.md").exists() else ""
    _, _, rest = text.partition("\n")
    known, predicted = fill_places(folder, text, contents, result)
    yield f"# {title_of(folder)}\n"
    yield (
        f"[plan](plan.toml), registered as `{result.registered[:16]}…`;"
        f" {result.done} of {result.of} cells.{' ' + result.stamp + '.' if result.stamp else ''}"
        f" Outcomes hold {phrases.conditions(result)}.\n"
    )
    yield f"Hypothesis, as registered, not a finding: *{result.hypothesis}*"
    yield from (f"\nKnown before the plan, as registered: {what}" for what in result.pilots)
    yield from (f"\nDeviation: {what}" for what in result.deviations)
    yield from (f"\n{sentence}" for sentence in phrases.controls(result))
    if rest.strip():
        yield "\n" + PLACE.sub(lambda place: known[place[1]], rest.strip())
    yield from tables(result)
    for one in predicted:
        yield from property_table(one)
    if (folder / BANDS).exists():
        yield from band_tables(folder / BANDS)
    if result.contrasts:
        yield "\nDifferences, paired by seed; above 0 favours the first:\n"
    for one in result.contrasts:
        yield f"- {one.task}, {phrases.sides(one)}: {contrast(one, result)}"


def repeated_cells(folders: list[Path]) -> Iterator[str]:
    """Yield the page's section on training runs shared by two studies, and on repetitions."""
    yield "\n## Cells that were run twice\n"
    yield (
        "`python -m studies.questions repetition MINE THEIRS` compares a study that you repeated"
        " with the stored study.\n"
    )
    for one, other in combinations(folders, 2):
        equal, both = equal_cells(read(one), read(other))
        if both:
            yield (
                f"- `{one.name}` and `{other.name}` have {both} cells in common, which were trained"
                f" in each study separately. The outcomes of all prompts are equal to the bit in"
                f" {equal} of these cells."
            )
    for folder in folders:
        if (folder / AGAIN / RESULTS).exists():
            rows = repetition(read(folder / AGAIN), read(folder))
            within, equal = sum(row.agrees is True for row in rows), sum(row.equal for row in rows)
            yield (
                f"- The whole study `{folder.name}` was repeated in `{folder.name}/{AGAIN}`, on"
                f" another day, by a later version of the code. The means of {within} of"
                f" {len(rows)} rows are within the intervals of the first run, and differ by at"
                f" most {largest_difference(rows):.4f} from its means;"
                f" {equal} of {sum(row.both for row in rows)} cells are equal to"
                " the bit."
            )


def largest_difference(rows: list[Repeated]) -> float:
    """Return the largest difference between a row's mean and that of the repeated study."""
    means = [(row.first, row.again) for row in rows]
    return max(abs(x.value - y.value) for x, y in means if x is not None and y is not None)


def index_line(folder: Path, page: str) -> str:
    """Return a study's line in studies/README.md: title, first statement, conditions."""
    (statement,) = re.findall(r"^> (.*)", page, re.MULTILINE)[:1] or ["Nothing is measured yet."]
    pilot = re.search(r"^\[plan\].* pilot: not evidence\.", page, re.MULTILINE)
    statement = f"Pilot, not evidence. {statement}" if pilot else statement
    holds = re.search(r"Outcomes hold (.*)\.$", page, re.MULTILINE)
    conditions = f" *({holds[1]})*" if holds else ""
    return f"- [{title_of(folder)}]({folder.name}/README.md) {statement}{conditions}"


def pages() -> dict[Path, str]:
    """Return the text of every page of the studies, by path."""
    folders = sorted(path.parent for path in STUDIES.glob("*/plan.toml"))
    done = [folder for folder in folders if (folder / RESULTS).exists()]
    texts = {folder: "\n".join(study_page(folder)) + "\n" for folder in folders}
    held = ", ".join(
        f"{100 * coverage(n):.0f} % of cases with {n} seeds" for n in (3, 6, 7, 8, 9, 10)
    )
    lines = {folder.name: index_line(folder, page) for folder, page in texts.items()}
    older = [lines.pop(name) for name in OLDER]
    index = HEAD.format(held=held) + "\n".join([*lines.values(), *repeated_cells(done)]) + "\n"
    return {
        STUDIES / "README.md": index,
        STUDIES / "older.md": HEAD_OF_OLDER + "\n".join(older) + "\n",
    } | {folder / "README.md": page for folder, page in texts.items()}


def main() -> None:
    stale = {
        path: fresh
        for path, fresh in pages().items()
        if not path.exists() or path.read_text() != fresh
    }
    if stale and "--check" in sys.argv:
        names = ", ".join(str(path.relative_to(STUDIES.parent)) for path in stale)
        sys.exit(f"{names} must be up to date. Run `python -m studies.findings`.")
    for path, fresh in stale.items():
        path.write_text(fresh)


if __name__ == "__main__":
    main()
