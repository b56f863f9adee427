"""Write studies/README.md from the stored outcomes; with --check, only say if it is stale.

The text of a study is its finding.md, whose numbers are places to be filled in:

    {copy.nope}         the metric of an encoding on a task, and its interval
    {copy.nope.in}      the same in range
    {copy.nope-rope}    a contrast of the plan: difference, interval, seeds, p by Holm
    {seeds}             how many seeds there are at least
    {copy.properties}   whether measured properties foretell the metric; then a table of them

and, of what no plan asked for, over seeds alone:

    {language.t5 at 4}                  the mean at 4 times the trained length, and its interval
    {language.t5 - rope at 4}           the difference there; above 0 speaks for the first
    {language.t5 - rope lost at 2}      the difference in what is lost from the trained length on
"""

import re
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import torch

from posenc.report.figures.studies import in_order
from posenc.report.words import studies as words
from posenc.study.analysis import Analysis, Contrast, Row, analyse
from posenc.study.bands import read_csv, recoveries
from posenc.study.prediction import Prediction, predict
from posenc.study.repetition import Repeated, equal_cells, repetition
from posenc.study.statistics import Interval, bootstrap, sign_flip
from posenc.study.store import RESULTS, read

STUDIES = Path(__file__).parent.parent / "studies"
AGAIN = "again"  # a second run of the whole plan
BANDS = "bands.csv"  # of `posenc results FOLDER --bands FOLDER/bands.csv`
PLACE = re.compile(r"\{([^{}\n]+)\}")
HEAD = """\
# Studies

Written by `python tools/findings.py` from the outcomes that lie beside it; a test runs it anew.
Each folder has the plan, whose hash was registered before the first training, and `results.db`, the
outcome of every prompt. To repeat one, in another folder:

    posenc study studies/shape-copy/plan.toml --out mine

`posenc results studies/shape-copy` prints its table, `--csv` and `--parquet` export every outcome.
A study that says "n of m cells" is not complete: `posenc study PLAN --out FOLDER` goes on with it.
"""


def number(value: float, bits: bool) -> str:
    return f"{value:.3f}" if bits else f"{100 * value:.0f} %"


def interval(value: Interval | None, bits: bool, sign: str = "") -> str:
    """66 % [58, 73]; of a difference +32 points [20, 43]."""
    if value is None:
        return "not measured"
    factor, digits = (1, 3) if bits else (100, 0)
    of = "" if bits else " points" if sign else " %"
    low, high = (f"{factor * end:{sign}.{digits}f}" for end in (value.low, value.high))
    return f"{factor * value.value:{sign}.{digits}f}{of} [{low}, {high}]"


def contrast(one: Contrast, bits: bool) -> str:
    if one.difference is None:
        return one.verdict
    wins = sum(difference > 0 for difference in one.by_seed)
    p = "" if one.adjusted is None else f", p = {one.adjusted:.2g} by Holm"
    why = f" ({one.verdict})" if one.verdict else ""
    said = f"above 0 in {wins} of {len(one.by_seed)} seeds"
    return f"{interval(one.difference, bits, '+')}, {said}{p}{why}"


def places(result: Analysis) -> dict[str, str]:
    found, bits = {}, {row.task: row.bits for row in result.rows}
    for row in result.rows:
        name = f"{row.task}.{row.encoding}"
        found[name] = interval(row.value, row.bits)
        if row.in_range is not None:
            found[f"{name}.in"] = number(row.in_range, row.bits)
    for one in result.contrasts:
        sides = "+".join(one.one), "+".join(one.other)
        found[f"{one.task}.{'-'.join(sides)}"] = contrast(one, bits[one.task])
    found["seeds"] = str(min(len(row.seeds) for row in result.rows))
    return found


AFTERWARDS = re.compile(r"(\w+)\.(\S+)(?: - (\S+))? (lost )?at ([\d.]+)")


def afterwards(place: str, result: Analysis) -> str | None:
    """What a place asks of a length that the plan does not; None for another place."""
    asked = AFTERWARDS.fullmatch(place)
    if asked is None:
        return None
    task, one, other, lost, times = asked.groups()
    rows = {row.encoding: row for row in result.rows if row.task == task}

    def by_seed(name: str) -> list[float]:
        row = rows[name]
        assert row.trained is not None
        far = row.curve[round(float(times) * row.trained)]
        near = row.curve[row.trained] if lost else [0.0] * len(far)
        return [x - y for x, y in zip(far, near, strict=True)]

    bits = rows[one].bits
    if other is None:
        return interval(over_seeds(by_seed(one)), bits)
    sign = -1 if bits else 1
    apart = [sign * (x - y) for x, y in zip(by_seed(one), by_seed(other), strict=True)]
    wins = sum(x > 0 for x in apart)
    p = sign_flip(apart)
    said = f"above 0 in {wins} of {len(apart)} seeds, p = {p:.2g}, not in the plan"
    return f"{interval(over_seeds(apart), bits, '+')}, {said}"


def over_seeds(values: list[float]) -> Interval:
    return bootstrap([torch.tensor([x], dtype=torch.float64) for x in values])


def table(rows: list[Row], metric: str) -> Iterator[str]:
    yield f"| {rows[0].task} | n ≤ L | {words.span(metric)} | seeds | parameters | ms a step | |"
    yield "|---|--:|--:|--:|--:|--:|---|"
    for row in in_order(rows):
        inside = "" if row.in_range is None else number(row.in_range, row.bits)
        speed = "" if row.seconds is None else f"{1e3 * row.seconds:.0f}"
        size = "" if row.parameters is None else f"{row.parameters:,}"
        cells = row.encoding, inside, interval(row.value, row.bits), len(row.seeds), size, speed
        yield f"| {' | '.join(map(str, cells))} | {words.note(row)} |"


def effects(found: Prediction) -> Iterator[str]:
    heads = "property", f"rank correlation with {words.span(found.metric)}", "p by Holm"
    yield f"\n| {found.task}: {' | '.join(heads)} | holds for | does not hold for |"
    yield "|---|--:|--:|---|---|"
    for one in found.effects:
        yield f"| {' | '.join(words.effect(one))} |"


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


def section(folder: Path) -> Iterator[str]:
    contents = read(folder)
    result = analyse(contents)
    text = (folder / "finding.md").read_text() if (folder / "finding.md").exists() else ""
    title, _, rest = text.partition("\n")
    known = places(result)
    for place in PLACE.findall(text):
        if (found := afterwards(place, result)) is not None:
            known[place] = found
    asked = any(place.endswith(".properties") for place in PLACE.findall(text))
    predicted = predict(contents, result) if asked else []
    known |= {f"{one.task}.properties": words.foretold(one) for one in predicted}
    unknown = {place for place in PLACE.findall(text) if place not in known}
    if unknown:
        sys.exit(f"{folder.name}/finding.md asks for {', '.join(sorted(unknown))}: not measured.")
    yield f"\n## {title.removeprefix('# ') or folder.name}\n"
    yield f"*{result.hypothesis}*\n"
    yield (
        f"[plan]({folder.name}/plan.toml), registered as `{result.registered[:16]}…`;"
        f" {result.done} of {result.of} cells.{' ' + result.stamp + '.' if result.stamp else ''}"
    )
    yield from (f"\nDeviation: {what}" for what in result.deviations)
    if rest.strip():
        yield "\n" + PLACE.sub(lambda place: known[place[1]], rest.strip())
    for task in dict.fromkeys(row.task for row in result.rows):
        yield ""
        yield from table([row for row in result.rows if row.task == task], result.metric)
    for one in predicted:
        yield from effects(one)
    if (folder / BANDS).exists():
        yield from bands(folder / BANDS)
    if result.contrasts:
        yield "\nDifferences, paired by seed; above 0 speaks for the first:\n"
    bits = {row.task: row.bits for row in result.rows}
    for one in result.contrasts:
        yield f"- {one.task}, {words.sides(one)}: {contrast(one, bits[one.task])}"


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
    folders = sorted(path.parent for path in STUDIES.glob(f"*/{RESULTS}"))
    lines = [line for folder in folders for line in section(folder)]
    return HEAD + "\n".join([*lines, *again(folders)]) + "\n"


def main() -> None:
    path, fresh = STUDIES / "README.md", written()
    if "--check" not in sys.argv:
        path.write_text(fresh)
    elif not path.exists() or path.read_text() != fresh:
        sys.exit("studies/README.md is stale: run `python tools/findings.py`.")


if __name__ == "__main__":
    main()
