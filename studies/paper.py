"""Write docs/paper from stored results: paper.md from source.md, its figures and their CSV.

draft.md, the draft of the paper that is to replace it, is written from draft-source.md in the same
way, but has numbers of complete studies only. With --check, only report stale files. A place in a
source is {study|place}. It can be any place of a finding.md (see findings.py), or

    {bands-copy|state}        the number of finished cells, and of seeds in each row
    {bands-copy|digest}       the digest of the plan;  |hypothesis}, |withdraw}  its text
    {names-64|controls}       whether the positive control gains
    {pairs-text|design}       sizes and steps;  |conditions}  lengths, rates, steps, seeds
    {pairs-text|processors}   processors of the training;  |intervals}  the kind of intervals
    {pairs-text|band all 128 4-7 slowed}    the recovery by a band;  |bands all 128}  a table
    {pairs-text|turns all 4-7}              the fewest and most turns of these pairs within L
    {pairs-text|together all 128 4-7 slowed}    the recovery, of the summed loss of all seeds
    {fair-text|trials}        bits at n ≤ L of each row at each rate, and the chosen rate
    {fair-text|orders}        bits at 2 L of each row, at one rate and at chosen rates
    {fair-text|positions}     bits within L, by the number of characters before
    {fair-text|contrasts}     the contrasts of the plan;  |outcome}  the contrasts, by decision
"""

import csv
import io
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from math import pi
from pathlib import Path
from statistics import fmean

from posenc.catalog import find
from posenc.encodings.rotary.rope import RoPE
from posenc.lab.study.analysis import Analysis, Row, analyse, outcomes_graded
from posenc.lab.study.build import encoding_of
from posenc.lab.study.plan import MOST_SEEDS, Plan
from posenc.lab.study.store import RESULTS, Contents, exists, read
from posenc.show.report.drawing.figure import Figure, Mark, Panel, style
from posenc.show.report.drawing.marks import Area, Line, Points, Rule
from posenc.show.report.kinds.study import phrases
from posenc.support.numbers import number as short
from studies import findings
from studies.questions import words as answers
from studies.questions.bands import read_csv, recoveries

ROOT = Path(__file__).parent.parent
STUDIES, PAPER = ROOT / "studies", ROOT / "docs/paper"
PLACE = re.compile(r"\{([\w-]+)\|([^{}]+)\}")
BAND = re.compile(r"band (\w+) (\d+) (\d+)-(\d+) (slowed|still)")
TURNS = re.compile(r"turns (\w+) (\d+)-(\d+)")
TOGETHER = re.compile(BAND.pattern.replace("band", "together", 1))
BANDS = re.compile(r"bands (\w+) (\d+)")
DRAFT = "draft-source.md"
PENDING = "*This study is not complete.*"
ONE_RATE = "properties-text"  # the study with which chosen rates are compared
SHOWN = ("none", "all", "period-7", "period-11", "period-16", "period-23")  # of bands-copy


@cache
def store(folder: Path) -> tuple[Contents, Analysis] | None:
    """Read and analyse the stored results of a study; return None if there are none."""
    if not exists(folder):
        return None
    contents = read(folder)
    return contents, analyse(contents)


def state(folder: Path) -> str:
    """Describe the progress of a study in words: complete or under way, runs and seeds."""
    held, plan = store(folder), Plan.read(folder / "plan.toml")
    if held is None or not (folder / RESULTS).exists():
        return findings.progress(folder, plan)
    result = held[1]
    complete = "it is complete" if result.done == result.of else "it is under way"
    return (
        f"{complete}, {result.done} of {result.of} cells, {phrases.seeds(result.rows)} of each row"
    )


def fill_place(folder: Path, place: str) -> str:
    """Return the text for a placeholder of the paper, from the study in `folder`."""
    if place == "state":
        return state(folder)
    if place in PLANNED:
        return PLANNED[place](Plan.read(folder / "plan.toml"))
    held = store(folder)
    if held is None:
        sys.exit(f"{folder.name} must have outcomes for the place {place}, got none.")
    contents, result = held
    if place in ANSWERS:
        return ANSWERS[place](folder, contents, result)
    if match := BAND.fullmatch(place):
        name, length, first, last, swap = match.groups()
        (one,) = (
            one
            for one in recoveries(read_csv(folder / "bands.csv"))
            if (one.encoding, one.length, one.how) == (name, int(length), swap)
            and one.pairs == (int(first), int(last) + 1)
        )
        value = one.recovered
        return f"{100 * value.value:+.0f} % [{100 * value.low:+.0f}, {100 * value.high:+.0f}]"
    if match := TOGETHER.fullmatch(place):
        name, length, first, _, swap = match.groups()
        share = jointly_recovered(folder, contents, name, int(length), int(first), swap)
        return f"{100 * share:+.0f} %"
    if match := TURNS.fullmatch(place):
        cell = next(x.cell for x in contents.records.values() if x.cell.name == match[1])
        pairs = slice(int(match[2]), int(match[3]) + 1)
        rope, trained = encoding_of(cell), result.rows[0].trained
        assert isinstance(rope, RoPE)
        turns = rope.theta.double()[pairs] * (trained or 0) / (2 * pi)
        return f"{short(turns.min().item(), 2)} to {short(turns.max().item(), 2)} turns"
    if match := BANDS.fullmatch(place):
        rows = [
            one
            for one in recoveries(read_csv(folder / "bands.csv"))
            if (one.encoding, one.length) == (match[1], int(match[2]))
        ]
        heads = [f"| pairs | {' | '.join(answers.WAYS.values())} |", "|---|--:|--:|"]
        return "\n".join([*heads, *(f"| {' | '.join(row)} |" for row in answers.by_band(rows))])
    return findings.fill_places(folder, f"{{{place}}}", contents, result)[0][place]


def processors(folder: Path, contents: Contents, result: Analysis) -> str:
    named = contents.sources.get("processor", "")
    if not named:
        return f"The store of `{folder.name}` does not name a processor."
    return f"`{folder.name}` was trained on {named}."


def jointly_recovered(
    folder: Path, contents: Contents, name: str, length: int, first: int, how: str
) -> float:
    """Return the share of lost bits, over all seeds, that one band of rotary pairs recovers."""
    bits = {
        record.cell.seed: {n: outcome.mean for n, outcome in outcomes_graded(record).items()}
        for record in contents.records.values()
        if record.cell.name == name and record.cell.seed <= MOST_SEEDS
    }
    trained = next(x.cell.trained for x in contents.records.values() if x.cell.trained)
    back = lost = 0.0
    for row in read_csv(folder / "bands.csv"):
        swap = row.swap
        if (row.encoding, swap.length, swap.pairs[0], swap.how) == (name, length, first, how):
            back += bits[row.seed][length] - swap.bits
            lost += bits[row.seed][length] - bits[row.seed][trained]
    return back / lost


def positions(folder: Path, contents: Contents, result: Analysis) -> str:
    return "\n".join(findings.position_table(result.rows)).strip()


def trials(folder: Path, contents: Contents, result: Analysis) -> str:
    plan = Plan.read(folder / "plan.toml")
    lines = [f"| row | {' | '.join(f'{rate:g}' for rate in plan.rates)} | chosen |"]
    lines.append(f"|---|{'--:|' * (len(plan.rates) + 1)}")
    for row in result.rows:
        means = [
            short(mean, 4) if mean is not None else "" for mean in at_rates(contents, row, plan)
        ]
        chosen = "" if row.rate is None else f"{row.rate:g}"
        lines.append(f"| {row.encoding} | {' | '.join(means)} | {chosen} |")
    return "\n".join(lines)


def at_rates(contents: Contents, row: Row, plan: Plan) -> list[float | None]:
    """Return the mean outcome of a row's trials by learning rate, over the trained lengths."""
    means = []
    for rate in plan.rates:
        found = [
            fmean(outcome.mean for outcome in outcomes_graded(record).values())
            for record in contents.records.values()
            if record.cell.seed > MOST_SEEDS
            and (record.cell.name, record.cell.profile.rate) == (row.encoding, rate)
        ]
        means.append(fmean(found) if found else None)
    return means


def at_twice(folder: Path, name: str) -> str:
    held = store(folder)
    if held is None or all(row.encoding != name for row in held[1].rows):
        return ""
    return findings.at_unplanned_length(f"language.{name} at 2", *held) or ""


def orders(folder: Path, contents: Contents, result: Analysis) -> str:
    one = folder.with_name(ONE_RATE)
    lines = [f"| row, bits at 2 L | `{ONE_RATE}` | `{folder.name}` |", "|---|--:|--:|"]
    for row in result.rows:
        cells = at_twice(one, row.encoding), at_twice(folder, row.encoding)
        lines.append(f"| {row.encoding} | {' | '.join(cells)} |")
    return "\n".join(lines)


def outcome(folder: Path, contents: Contents, result: Analysis) -> str:
    """List the encodings of contrasts by result: fewer bits, more bits, or undecided."""
    sorts: dict[str, list[str]] = {"fewer": [], "more": [], phrases.UNDECIDED: []}
    for one in result.contrasts:
        assert one.difference is not None
        sign = "fewer" if one.difference.value > 0 else "more"
        name = " and ".join(find(row).name for row in one.one)
        sorts[sign if one.decided else phrases.UNDECIDED].append(name)
    return "; ".join(f"{sign}: {', '.join(names) or 'none'}" for sign, names in sorts.items())


def contrasts(folder: Path, contents: Contents, result: Analysis) -> str:
    return "\n".join(
        f"- {phrases.sides(one)}: {findings.contrast(one, result)}" for one in result.contrasts
    )


PLANNED = {
    "digest": lambda plan: f"{plan.digest[:16]}…",
    "hypothesis": lambda plan: plan.hypothesis,
    "withdraw": lambda plan: plan.withdraw,
}
ANSWERS = {
    "controls": lambda folder, contents, result: " ".join(phrases.controls(result)),
    "design": lambda folder, contents, result: phrases.design(result),
    "conditions": lambda folder, contents, result: phrases.conditions(result),
    "intervals": lambda folder, contents, result: phrases.intervals(result.rows),
    "processors": processors,
    "positions": positions,
    "trials": trials,
    "orders": orders,
    "outcome": outcome,
    "contrasts": contrasts,
}


def paper_text(studies: Path = STUDIES, name: str = "source.md") -> str:
    """Return the text of the paper that is written from a source, "source.md" or DRAFT."""

    def fill(place: re.Match[str]) -> str:
        folder = studies / place[1]
        ready = (folder / RESULTS).exists() or place[2] in PLANNED
        return fill_place(folder, place[2]) if ready or name != DRAFT else PENDING

    text = PLACE.sub(fill, (PAPER / name).read_text("utf-8"))
    return f"<!-- written by `python -m studies.paper` from {name} -->\n\n{text}"


def figures(studies: Path = STUDIES) -> dict[str, Figure]:
    return {
        "bands": bands_figure(studies / "pairs-text"),
        "copied": copied_figure(studies / "bands-copy"),
        "rates": rates_figure(studies / "fair-text"),
    }


def bands_figure(folder: Path) -> Figure:
    found = [one for one in recoveries(read_csv(folder / "bands.csv")) if one.how == "slowed"]
    panels, names = [], list(dict.fromkeys(one.pairs for one in found))
    for name in dict.fromkeys(one.encoding for one in found):
        marks: list[Mark] = []
        for n, length in enumerate(dict.fromkeys(one.length for one in found)):
            look = style(n)
            rows = [one for one in found if (one.encoding, one.length) == (name, length)]
            at = [names.index(one.pairs) + 0.2 * n - 0.1 for one in rows]
            values = [100 * one.recovered.value for one in rows]
            label = f"n = {length}"
            marks.append(Points(at, values, label, look["colour"], look["marker"]))
            for place, one in zip(at, rows, strict=True):
                ends = [100 * one.recovered.low, 100 * one.recovered.high]
                marks.append(Line([place, place], ends, label, look["colour"], width=1))
        marks.append(Rule(0, "y"))
        ends = [f"{first} to {end - 1}" for first, end in names]
        panels.append(
            Panel(f"`{name}`", marks, "pairs of the band", "of the lost bits, %", x_names=ends)
        )
    caption = "One band recovers most of the loss; the fastest is needed, the slowest are not."
    return Figure("Recovery by each band", panels, caption, columns=2)


def copied_figure(folder: Path) -> Figure:
    held = store(folder)
    assert held is not None
    panels = []
    for row in held[1].rows:
        if row.encoding not in SHOWN:
            continue
        marks: list[Mark] = []
        if findings.PERIOD.fullmatch(row.encoding):
            inside = findings.predicted_lengths(row, row.encoding)
            left, right = inside[0] - 0.5, inside[-1] + 0.5
            corners = [left, right, right, left], [0.0, 0.0, 100.0, 100.0]
            marks.append(Area(*corners, "predicted", faint=True))
        marks.append(Line([*row.means], [100 * x for x in row.means.values()], ""))
        marks.append(Rule(row.trained or 0, "x"))
        panels.append(Panel(row.encoding, marks, "words n", "texts copied, %", y_range=(-3, 103)))
    return Figure(
        "Texts copied, by length",
        panels,
        "Predicted lengths are shaded; the dotted line is L.",
        columns=3,
    )


def rates_figure(folder: Path) -> Figure:
    both = [(ONE_RATE, store(folder.with_name(ONE_RATE))), (folder.name, store(folder))]
    marks: list[Mark] = []
    names: list[str] = []
    for n, (label, held) in enumerate(both):
        assert held is not None
        rows = {row.encoding: row for row in held[1].rows}
        names = names or [row.encoding for row in store(folder)[1].rows if row.encoding in rows]  # type: ignore[index]
        values = [rows[name].means[2 * (rows[name].trained or 0)] for name in names]
        look = style(n)
        at = [float(place) for place in range(len(names))]
        marks.append(Points(at, values, label, look["colour"], look["marker"]))
    caption = "Each row at 2 L, in two studies with different rates, steps and heads."
    panel = Panel("", marks, "", "bits per character", x_names=names)
    return Figure("Bits at 2 L", [panel], caption)


def numbers(figure: Figure) -> str:
    """Return the plotted numbers of a figure as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["panel", "series", "at", "value"])
    for panel, name, place, value in _rows(figure.panels):
        writer.writerow([panel, name, place, value])
    return file.getvalue()


def _rows(panels: Sequence[Panel]) -> Iterator[tuple[str, str, str, str]]:
    for panel in panels:
        for mark in panel.marks:
            if isinstance(mark, Line | Points):
                kind = "interval" if isinstance(mark, Line) and len(mark.x) == 2 else "mean"
                for x, y in zip(mark.x, mark.y, strict=True):
                    at = panel.x_names[round(x or 0)] if panel.x_names else f"{x:g}"
                    yield panel.title.strip("`"), f"{mark.name} {kind}".strip(), at, f"{y:.6g}"


def main() -> None:
    drawn = figures()
    files = {PAPER / "paper.md": paper_text(), PAPER / "draft.md": paper_text(name=DRAFT)}
    files |= {PAPER / f"{name}.csv": numbers(figure) for name, figure in drawn.items()}
    if "--check" in sys.argv:
        stale = [
            path.name for path, new in files.items()
            if not path.exists() or path.read_text("utf-8") != new
        ]  # fmt: skip
        stale += [f"{name}.svg" for name in drawn if not (PAPER / f"{name}.svg").exists()]
        if stale:
            sys.exit(f"docs/paper: {', '.join(stale)} are stale. Run `python -m studies.paper`.")
        return
    from posenc.show.report.drawing.matplotlib import save

    for path, new in files.items():
        path.write_text(new, "utf-8")
    for name, figure in drawn.items():
        save(figure, PAPER / f"{name}.svg")


if __name__ == "__main__":
    main()
