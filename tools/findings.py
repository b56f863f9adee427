"""Write studies/README.md from the stored outcomes; with --check, only say if it is stale.

The text of a study is its finding.md, whose numbers are places to be filled in:

    {copy.nope}         the metric of an encoding on a task, and its interval
    {copy.nope.in}      the same in range
    {copy.nope-rope}    a contrast of the plan: difference, interval, length, rate, seeds, Holm's p
    {seeds}             how many seeds there are at least
    {copy.properties}   whether measured properties foretell the metric; then a table of them
    {copy.t5 published at 1.2}          the published number at 1.2 times its trained length
    {copy.period-7 foretold}            the lengths that aliasing foretells against the others

and, of what no plan asked for, over seeds alone:

    {copy.period-7 share foretold}      the least and the largest mean at these lengths
    {copy.period-7 most beyond L}       the largest mean at a length beyond L, and that length
    {language.t5 at 4}                  the mean at 4 times the trained length, and its interval
    {language.t5 - rope at 4}           the difference there; above 0 speaks for the first
    {language.t5 - rope over L…2L}      the same over the lengths tested from L on up to 2 L
    {language.t5 - rope cropped at 2}   T5 that reads all, RoPE that is shown the last L alone
    {language.t5 - rope lost at 2}      the difference in what is lost from the trained length on
    {language.learned of all}           a property's rank correlation with the outcome, and Holm's p
    {language.learned of all but sine}  the same without some encodings
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import inf
from pathlib import Path
from statistics import fmean

import torch

from posenc.core.numerals import number as short
from posenc.lab.study.analysis import Analysis, Contrast, Row, analyse
from posenc.lab.study.bands import read_csv, recoveries
from posenc.lab.study.plan import Plan
from posenc.lab.study.prediction import Prediction, predict
from posenc.lab.study.published import published
from posenc.lab.study.repetition import Repeated, equal_cells, repetition
from posenc.lab.study.statistics import Interval, coverage, holm, may_rank, sign_flip
from posenc.lab.study.statistics import interval as t_interval
from posenc.lab.study.store import RESULTS, RUNNING, Contents, read
from posenc.show.report.kinds.study import words

STUDIES = Path(__file__).parent.parent / "studies"
AGAIN = "again"  # a second run of the whole plan
BANDS = "bands.csv"  # of `posenc results FOLDER --bands FOLDER/bands.csv`
NOTHING = "not measured"
PLACE = re.compile(r"\{([^{}\n]+)\}")
ROUNDING = 1e-9  # of float32 outcomes: a difference up to it is none
HEAD = """\
# Studies

Written by `python tools/findings.py` from the outcomes that lie beside it; a test runs it anew.
Each folder has the plan, whose hash was registered before the first training, and `results.db`, the
outcome of every prompt. To repeat one, in another folder:

    posenc study studies/shape-copy/plan.toml --out mine

`posenc results studies/shape-copy` prints its table, `--csv` and `--parquet` export every outcome.
Every number holds for tiny models, at the lengths, the learning rates and the steps that stand
with it; "no difference shown" is not equality. The simplest ways to read a longer text have rows of
their own: *cropped*, the same model is shown the last L tokens alone, and *windowed*, each token
sees L back. A seed is trained when 95 % of its answers are right at n = L. Intervals are t
intervals for 95 %; those of tables and of contrasts in the plan are over seeds and prompts, which
all seeds share, the others over seeds alone. In the worst of several simulated worlds they hold the
truth in {held}.
A study that says "n of m cells" is not complete: `posenc study PLAN --out FOLDER` goes on with it.
What some of them say together is [a paper](../docs/paper/paper.md); your own encoding has
[an arena](../docs/arena.md) and [a board](board/v1.md).
"""


def number(value: float, bits: bool) -> str:
    return f"{value:.3f}" if bits else f"{100 * value:.0f} %"


def interval(value: Interval | None, bits: bool, sign: str = "") -> str:
    """66 % [58, 73]; of a difference +32 points [20, 43]."""
    if value is None:
        return NOTHING
    factor, digits = (1, 3) if bits else (100, 0)
    of = "" if bits else " points" if sign else " %"
    low, high = (f"{factor * end:{sign}.{digits}f}" for end in (value.low, value.high))
    return f"{factor * value.value:{sign}.{digits}f}{of} [{low}, {high}]"


def contrast(one: Contrast, result: Analysis) -> str:
    """A difference of the plan with its conditions, and what speaks against it."""
    if one.difference is None:
        return one.verdict
    p = [] if one.adjusted is None else [f"p = {one.adjusted:.2g} by Holm"]
    verdict = words.verdict(one)
    against = [] if verdict.endswith("is better") else [verdict]
    where = words.span(result.metric)
    bits = any(row.bits for row in result.rows if row.task == one.task)
    return difference(one.difference, one.by_seed, bits, where, result, [*p, *against])


def difference(
    value: Interval,
    by_seed: Sequence[float],
    bits: bool,
    where: str,
    result: Analysis,
    more: list[str],
) -> str:
    """+32 points [+29, +36] (1.2 L, rate 0.001; above 0 in 6 of 6 seeds; …)."""
    one = None if result.profile is None else f"rate {short(result.profile.rate, 2)}"
    rate = f", {one or 'rates chosen at n ≤ L'}"
    wins = f"above 0 in {sum(x > ROUNDING for x in by_seed)} of {len(by_seed)} seeds"
    return f"{interval(value, bits, '+')} ({'; '.join([where + rate, wins, *more])})"


def places(result: Analysis) -> dict[str, str]:
    found = {}
    for row in result.rows:
        name = f"{row.task}.{row.encoding}"
        found[name] = interval(row.value, row.bits)
        if row.in_range is not None:
            found[f"{name}.in"] = number(row.in_range, row.bits)
    for one in result.contrasts:
        sides = "+".join(one.one), "+".join(one.other)
        found[f"{one.task}.{'-'.join(sides)}"] = contrast(one, result)
    found["seeds"] = str(min(len(row.seeds) for row in result.rows))
    return found


TASK = r"([\w-]+)\."
SIDE = r"(.+?)( cropped)?"  # labels may hold spaces
AFTERWARDS = re.compile(rf"{TASK}{SIDE}(?: - {SIDE})? (lost )?(?:at ([\d.]+)|over L…2L)")


def afterwards(place: str, contents: Contents, result: Analysis) -> str | None:
    """What a place asks of lengths that the plan does not, or cropped; None for another place."""
    asked = AFTERWARDS.fullmatch(place)
    if asked is None:
        return None
    task, one, one_cropped, other, other_cropped, lost, times = asked.groups()

    def by_seed(name: str, cropped: str | None) -> dict[int, float]:
        of = analyse(contents, "cropped", 1) if cropped else result
        (row,) = (row for row in of.rows if (row.task, row.encoding) == (task, name))
        if row.trained is None or not row.curve:
            return {}
        means = at(row, [round(float(times) * row.trained)] if times else beyond(row))
        near = at(row, [row.trained]) if lost else dict.fromkeys(means, 0.0)
        return {seed: mean - near[seed] for seed, mean in means.items()}

    bits = any(row.bits for row in result.rows if row.task == task)
    first = by_seed(one, one_cropped)
    if other is None:
        return over_seeds_of(first, bits)
    second = by_seed(other, other_cropped)
    apart = [second[s] - first[s] if bits else first[s] - second[s] for s in first if s in second]
    if not apart:
        return NOTHING
    p = sign_flip(apart)
    against = [words.UNDECIDED] if p >= words.LEVEL else []
    where = f"{times} L" if times else words.span("area")
    more = [f"p = {p:.2g}", *against, "not in the plan"]
    return difference(over_seeds(apart), apart, bits, where, result, more)


def at(row: Row, lengths: Sequence[int]) -> dict[int, float]:
    """By seed, the mean over lengths, all of which were tested."""
    means = zip(*(row.curve[n] for n in lengths), strict=True)
    return dict(zip(row.seeds, map(fmean, means), strict=True))


def over_seeds_of(values: Mapping[int, float], bits: bool) -> str:
    if not values:
        return NOTHING
    return interval(over_seeds([*values.values()], share=not bits), bits)


FORETOLD = re.compile(TASK + r"(\S+) (foretold|share foretold|most beyond L)")
PERIOD = re.compile(r"period-(\d+)")  # labels of rows of which four pairs turn once in P tokens


def aliasing(place: str, result: Analysis) -> str | None:
    """What aliasing foretells of a row, as its plan says; None for another place.

    A text of n > L words is copied better where n − P is a trained length, from 1 to L: the mean
    over these n minus the mean over the others beyond L, paired by seed, Holm over all periods.
    """
    asked = FORETOLD.fullmatch(place)
    if asked is None:
        return None
    rows = {
        row.encoding: row
        for row in result.rows
        if row.task == asked[1] and PERIOD.fullmatch(row.encoding)
    }
    row = rows[asked[2]]
    if row.trained is None or not row.seeds:
        return NOTHING
    far = [n for n in row.curve if n > row.trained]
    if asked[3] == "share foretold":
        shares = [row.means[n] for n in foretold(row)]
        ends = dict.fromkeys(number(end(shares), row.bits) for end in (min, max))
        return " to ".join(ends)
    if asked[3] == "most beyond L":
        best = max(far, key=lambda n: row.means[n])
        return f"{number(row.means[best], row.bits)} at n = {best}"
    tests = {name: foretold_by_seed(row) for name, row in rows.items()}
    apart = tests[row.encoding]
    # a row without seeds is tested all the same, so that no p is adjusted for fewer than planned
    adjusted = holm({name: sign_flip(x) if x else 1.0 for name, x in tests.items()})
    p = adjusted[row.encoding]
    against = [words.UNDECIDED] if p >= words.LEVEL else []
    if not may_rank(len(apart)):
        against = [f"{len(apart)} seeds: no ranking claims"]
    inside = foretold(row)
    where = f"n from {inside[0]} to {inside[-1]} against the others from {far[0]} to {far[-1]}"
    more = [f"p = {p:.2g} by Holm over {len(rows)}", *against, *filter(None, [words.note(row)])]
    return difference(over_seeds(apart), apart, row.bits, where, result, more)


def foretold(row: Row) -> list[int]:
    """The tested lengths beyond L at which n − P is a trained length."""
    period = PERIOD.fullmatch(row.encoding)
    assert period
    assert row.trained
    phase = range(int(period[1]) + 1, int(period[1]) + row.trained + 1)
    return [n for n in row.curve if n in phase and n > row.trained]


def foretold_by_seed(row: Row) -> list[float]:
    """By seed, how much more of the texts of foretold lengths is copied than of the others."""
    if row.trained is None or not row.seeds:
        return []
    inside = foretold(row)
    others = [n for n in row.curve if n > row.trained and n not in inside]
    near, far = at(row, inside), at(row, others)
    return [near[seed] - far[seed] for seed in row.seeds]


def beyond(row: Row) -> list[int]:
    """The lengths beyond L, up to twice as long."""
    assert row.trained is not None
    return [n for n in row.curve if row.trained < n <= 2 * row.trained]


PUBLISHED = re.compile(TASK + r"(\S+) published at ([\d.]+)")


def as_published(place: str) -> str | None:
    """A published number, in the unit of its paper; None for another place."""
    asked = PUBLISHED.fullmatch(place)
    shape = published(asked[1]) if asked else None
    if asked is None or shape is None:
        return None
    at = float(asked[3]) * shape.trained
    (value,) = (point.value for point in shape.curves[asked[2]] if point.length == round(at))
    return f"{value:g} %" if shape.percent else f"{value:g}"


PROPERTY = re.compile(TASK + r"(\w+) of all(?: but (.+))?")


def property_alone(place: str, contents: Contents, result: Analysis) -> str | None:
    """How one property goes with the outcome of all encodings, or of some; None elsewhere."""
    asked = PROPERTY.fullmatch(place)
    if asked is None:
        return None
    task, name, without = asked.groups()
    out = (without or "").split()
    kept = [row.encoding for row in result.rows if row.encoding not in out]
    (found,) = predict(contents, result.only([task], kept))
    (effect,) = (effect for effect in found.effects if effect.property == name)
    return f"{effect.correlation:+.2f}, p = {effect.adjusted:.2g} by Holm"


def over_seeds(values: list[float], share: bool = False) -> Interval:
    if len(values) == 1:  # which says nothing of others
        ends = (0.0, 1.0) if share else (-inf, inf)
        return Interval(values[0], *ends)
    return t_interval([torch.tensor([x], dtype=torch.float64) for x in values], share=share)


def table(rows: list[Row], metric: str) -> Iterator[str]:
    """The metric, and every other length from L on."""
    others = lengths(rows, metric)
    heads = ["n ≤ L", words.span(metric)]
    heads += [f"n = {n}" for n in others] + [words.span("area")] * (metric != "area")
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
        yield f"| {' | '.join([row.encoding, *cells])} | {words.note(row)} |"


def lengths(rows: list[Row], metric: str) -> list[int]:
    """All tested lengths from L on but that of the metric, for an order may hold at one alone."""
    trained = next((row.trained for row in rows if row.trained), 0)
    asked = 0 if metric == "area" else round(float(metric.removeprefix("at ")) * trained)
    return sorted({n for row in rows for n in row.curve if n >= trained} - {asked})


def effects(found: Prediction) -> Iterator[str]:
    heads = "property", f"rank correlation with {words.span(found.metric)}", "p by Holm"
    yield f"\n| {found.task}: {' | '.join(heads)} | holds for | does not hold for |"
    yield "|---|--:|--:|---|---|"
    for one in found.effects:
        yield f"| {' | '.join(words.effect(one))} |"
    yield f"\n{words.ALIKE}"


def bands(path: Path) -> Iterator[str]:
    found = recoveries(read_csv(path))
    for name, length in dict.fromkeys((one.encoding, one.length) for one in found):
        rows = [one for one in found if (one.encoding, one.length) == (name, length)]
        yield f"\nOf the bits that `{name}` loses at {length} tokens, its bands of pairs bring back"
        yield f"([each swap]({path.parent.name}/{path.name}), {len(rows[0].by_seed)} seeds):\n"
        yield f"| pairs | {' | '.join(words.WAYS.values())} |"
        yield "|---|--:|--:|"
        for row in words.by_band(rows):
            yield f"| {' | '.join(row)} |"


def begun(folder: Path) -> Iterator[str]:
    """A study that is registered, and whose outcomes are too few to be here."""
    plan = Plan.read(folder / "plan.toml")
    yield f"\n## {folder.name}\n"
    yield (
        f"[plan]({folder.name}/plan.toml), registered as `{plan.digest[:16]}…`;"
        f" {under_way(folder, plan)}.\n"
    )
    yield f"Hypothesis, as registered, no finding: *{plan.hypothesis}*"


def under_way(folder: Path, plan: Plan) -> str:
    """How far a study is whose outcomes are not written about yet."""
    done = len(read(folder).records) if (folder / RUNNING).exists() else 0
    return f"{done} of {len(plan.cells())} cells are done, and nothing is said of them yet"


def filled(
    folder: Path, text: str, contents: Contents, result: Analysis
) -> tuple[dict[str, str], list[Prediction]]:
    """What stands for each place of a text on a study, and what properties foretell, if asked."""
    known = places(result)
    for place in PLACE.findall(text):
        found = (
            as_published(place)
            or aliasing(place, result)
            or afterwards(place, contents, result)
            or property_alone(place, contents, result)
        )
        if found is not None:
            known[place] = found
    asked = any(place.endswith(".properties") for place in PLACE.findall(text))
    predicted = predict(contents, result) if asked else []
    known |= {f"{one.task}.properties": words.foretold(one) for one in predicted}
    unknown = {place for place in PLACE.findall(text) if place not in known}
    if unknown:
        sys.exit(f"{folder.name}: its text asks for {', '.join(sorted(unknown))}: not measured.")
    return known, predicted


def section(folder: Path) -> Iterator[str]:
    if not (folder / RESULTS).exists():
        yield from begun(folder)
        return
    contents = read(folder)
    result = analyse(contents)
    text = (folder / "finding.md").read_text() if (folder / "finding.md").exists() else ""
    title, _, rest = text.partition("\n")
    known, predicted = filled(folder, text, contents, result)
    yield f"\n## {title.removeprefix('# ') or folder.name}\n"
    yield (
        f"[plan]({folder.name}/plan.toml), registered as `{result.registered[:16]}…`;"
        f" {result.done} of {result.of} cells.{' ' + result.stamp + '.' if result.stamp else ''}"
        f" Outcomes hold {words.conditions(result)}.\n"
    )
    yield f"Hypothesis, as registered, no finding: *{result.hypothesis}*"
    yield from (f"\nSeen before the plan was written: {what}" for what in result.pilots)
    yield from (f"\nDeviation: {what}" for what in result.deviations)
    if rest.strip():
        yield "\n" + PLACE.sub(lambda place: known[place[1]], rest.strip())
    for task in dict.fromkeys(row.task for row in result.rows):
        yield ""
        both = [*result.rows, *result.baselines]
        yield from table([row for row in both if row.task == task], result.metric)
    for one in predicted:
        yield from effects(one)
    if (folder / BANDS).exists():
        yield from bands(folder / BANDS)
    if result.contrasts:
        yield "\nDifferences, paired by seed; above 0 speaks for the first:\n"
    for one in result.contrasts:
        yield f"- {one.task}, {words.sides(one)}: {contrast(one, result)}"


def again(folders: list[Path]) -> Iterator[str]:
    """Which cells two studies have both trained, and whether their outcomes are equal."""
    yield "\n## Cells that were run twice\n"
    yield "`posenc results MINE --against THEIRS` asks this of your own repetition of a study.\n"
    for one, other in combinations(folders, 2):
        equal, both = equal_cells(read(one), read(other))
        if both:
            yield (
                f"- `{one.name}` and `{other.name}` have {both} cells in common, trained apart:"
                f" the outcomes of every prompt are equal, bit by bit, in {equal} of them."
            )
    for folder in folders:
        if (folder / AGAIN / RESULTS).exists():
            rows = repetition(read(folder / AGAIN), read(folder))
            within, equal = sum(row.agrees is True for row in rows), sum(row.equal for row in rows)
            yield (
                f"- `{folder.name}` was run a second time as a whole, into `{folder.name}/{AGAIN}`,"
                f" on another day, by a later version of the code: {within} of {len(rows)} rows"
                f" agree within the intervals of the first, at most {apart(rows):.4f} from its"
                f" means; {equal} of {sum(row.both for row in rows)} cells are equal, bit by bit."
            )


def apart(rows: list[Repeated]) -> float:
    """The largest difference between a mean and that of the repetition."""
    means = [(row.first, row.again) for row in rows]
    return max(abs(x.value - y.value) for x, y in means if x is not None and y is not None)


def written() -> str:
    folders = sorted(path.parent for path in STUDIES.glob("*/plan.toml"))
    done = [folder for folder in folders if (folder / RESULTS).exists()]
    lines = [line for folder in folders for line in section(folder)]
    held = ", ".join(
        f"{100 * coverage(n):.0f} % of cases with {n} seeds" for n in (3, 6, 7, 8, 9, 10)
    )
    return HEAD.format(held=held) + "\n".join([*lines, *again(done)]) + "\n"


def main() -> None:
    path, fresh = STUDIES / "README.md", written()
    if "--check" not in sys.argv:
        path.write_text(fresh)
    elif not path.exists() or path.read_text() != fresh:
        sys.exit("studies/README.md is stale: run `python tools/findings.py`.")


if __name__ == "__main__":
    main()
