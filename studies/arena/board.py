"""The board: verified results of the arena, with a row for each entry, as JSON and as a page.

verify      checks that every study of the suite is complete, by the suite's own plans, with
            checksums, made by one version of the code, and without deviations
repeat      trains four cells again, which are chosen by the digests of the stores. On the same
            processor with the same code, losses and outcomes must be equal to the bit; on others,
            they must not differ more at any length than seeds of the board's baselines do
add         adds a row: for each task area, curve, gate and rate of the entry and of the rows
            trained with it, and the decisions on the contrasts

The code of an entry is not run in this process, but in that of `studies.arena.training`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import torch

from posenc.lab.arena.suite import ENTRY, Suite, is_entry
from posenc.lab.study import analysis, environment, execute, store, user_code_gate
from posenc.lab.study.analysis import Analysis, Row
from posenc.lab.study.cell import Cell
from posenc.lab.study.plan import BASELINES, MOST_SEEDS, Plan
from posenc.lab.study.store import Contents, Record
from posenc.support.arguments import brief
from posenc.support.text import printable
from posenc.support.version import __version__
from posenc.support.writing import write_whole
from studies.arena import training

READINGS = tuple(f" {how}" for how in BASELINES)  # ends of the names of baseline rows
NEAR = 0.02  # share of right answers, or bits, by which a cell may always differ on other machines
REPEATED = 4  # number of cells that are trained again, two of them the entry's

TrainAgain = Callable[[Sequence[Cell], training.Progress], Sequence[Record]]


class BoardError(ValueError):
    """Raised if a study's results cannot be added to the board, or the board is invalid."""


@dataclass(frozen=True)
class Again:
    """A training run (cell) that was repeated, and the difference from its stored outcomes."""

    study: str
    cell: str
    equal: bool  # losses and outcomes are equal to the bit
    stored: float  # mean of all its graded outcomes in the store
    again: float  # the same of the repetition
    apart: float  # largest difference of the means at one length


@dataclass(frozen=True)
class Repeat:
    """The training runs that were repeated to verify stores, and the processor used."""

    drawn: str  # digest by which the cells were chosen
    cells: Sequence[Again]
    processor: str

    @property
    def equal(self) -> bool:
        """True if every repeated run equals its stored outcomes to the bit."""
        return all(cell.equal for cell in self.cells)


def verify(
    folder: Path, suite: Suite, allow_code: user_code_gate.Allowed = ()
) -> dict[str, Contents]:
    """Read and verify the stored results of a suite of studies in a folder.

    Raises BoardError for an incomplete or changed store, StoreError for a damaged one, and
    CodeRefused for code of an entry that is not allowed.
    """
    stores = {name: store.read(folder / name) for name in suite.studies}
    entry = _entry_of(folder, next(iter(stores.values())))
    plans, first = suite.plans(entry), next(iter(stores.values())).sources
    user_code_gate.check_allowed([entry], allow_code, folder, first)
    for name, contents in stores.items():
        _verify_study(folder / name, plans[name], contents, entry)
        if changed := environment.changes(first, contents.sources):
            raise BoardError(
                f"{folder / name} must be made with the versions and code of the other studies, got"
                f" differences: {changed}. Run the suite in a new folder."
            )
    return stores


def _verify_study(where: Path, plan: Plan, contents: Contents, entry: str) -> None:
    """Raise BoardError unless a store has all runs of one plan, without deviations."""
    again = "Run the suite in a new folder."
    if not contents.checked:
        raise BoardError(
            f"{where} must be a store with checksums, got format 1. Run the same"
            " `posenc arena` on it, which writes them."
        )
    if any(digest != sha256(text.encode()).hexdigest() for digest, text in contents.plans):
        raise BoardError(
            f"{where} must have plans with the digests of their texts, got others. {again}"
        )
    if len(contents.plans) != 1 or analysis.plan_of(contents) != plan:
        raise BoardError(f"{where} must have the plan of the suite for {entry}. {again}")
    if contents.deviations:
        raise BoardError(
            f"{where} must not deviate from its plan, got {contents.deviations[0]}. {again}"
        )
    result, rates = analysis.analyse(contents), analysis.chosen_rates(plan, contents)
    lacking = [row.encoding for row in result.rows if (row.task, row.encoding) not in rates]
    if plan.rates and lacking:
        raise BoardError(
            f"{where} must have all trials of learning rates, got too few for {lacking[0]}. Run"
            " the same command to continue."
        )
    if result.done < result.of:
        raise BoardError(
            f"{where} must have {result.of} cells, got {result.done}. Run the same command to"
            " continue."
        )
    _refuse_other_cells(where, plan, contents, rates)


def _refuse_other_cells(
    where: Path, plan: Plan, contents: Contents, rates: Mapping[tuple[str, str], float]
) -> None:
    """Raise BoardError for training runs that are not in the plan, and for missing outcomes.

    Cells outside of the plan would change the choice of the cells to repeat.
    """
    cells = execute.cells_of(plan)
    wanted = {(execute.with_rate(x, rates) if plan.rates else x).digest for x in cells}
    if other := [x for name, x in contents.records.items() if name not in wanted]:
        raise BoardError(
            f"{where} must have only cells of its plan, got {_named(other[0].cell)}. Leave it out."
        )
    for record in contents.records.values():
        graded = analysis.outcomes_graded(record)
        whole = {n: record.cell.profile.prompts for n in record.cell.tested}
        if record.failure is None and {n: x.prompts for n, x in graded.items()} != whole:
            raise BoardError(
                f"{where}: {_named(record.cell)} must have outcomes of all lengths and prompts of"
                " its plan, got fewer."
            )


def _entry_of(folder: Path, contents: Contents) -> str:
    """Return the name of the encoding that a stored study measures, the arena's entry."""
    plan = analysis.plan_of(contents)
    rows = [] if plan is None else [row for row in plan.encodings if row.name == ENTRY]
    if not rows:
        raise BoardError(
            f"{folder} must have a row called {ENTRY}, got none. Pass the folder of `posenc arena`."
        )
    return rows[0].encoding


def drawn_by(stores: Mapping[str, Contents]) -> str:
    """Return the seed for choosing the runs to repeat: the SHA-256 of all outcomes."""
    digests = "".join(f"{name} {digest}\n" for name, digest in sorted(outcomes_of(stores).items()))
    return sha256(digests.encode()).hexdigest()


def to_repeat(stores: Mapping[str, Contents], count: int = REPEATED) -> list[tuple[str, str]]:
    """Choose the training runs to repeat, as (study, digest); the first two are the entry's.

    The two are tested beyond the trained length. The choice depends on the stores only.
    """
    everything = [(name, cell) for name in sorted(stores) for cell in sorted(stores[name].records)]
    entries = [
        (name, digest)
        for name, digest in everything
        if is_entry((cell := stores[name].records[digest].cell).name)
        and max(cell.tested) > (cell.trained or 0)
    ]
    random = Random(drawn_by(stores))
    chosen = random.sample(entries, 2)
    rest = [one for one in everything if one not in chosen]
    return chosen + random.sample(rest, min(len(rest), max(count, REPEATED) - 2))


def repeat(
    stores: Mapping[str, Contents],
    rows: Sequence[Mapping[str, Any]],
    count: int = REPEATED,
    train_again: TrainAgain = training.train_separately,
    progress: training.Progress = lambda *_: None,
) -> Repeat:
    """Repeat some training runs, and compare the outcomes with the stored ones.

    - `stores`: verified stores by study
    - `rows`: rows of the board
    - `count`: number of cells, at least four
    - `train_again`: function that trains cells and returns their records
    - `progress`: function that receives cell, step and steps

    Raises BoardError if a cell differs by too much.
    """
    places = to_repeat(stores, count)
    stored = [stores[study].records[digest] for study, digest in places]
    try:
        again = train_again([record.cell for record in stored], progress)
    except training.TrainingFailed as error:
        raise BoardError(str(error)) from None
    cells = []
    for (study, _), one, other in zip(places, stored, again, strict=True):
        apart = _apart(one, other)
        equal = _bits(one) == _bits(other)
        if not equal:
            _refuse_far(stores[study], study, one, other, rows)
        before, now = (0.0 if x.failure else _mean(x) for x in (one, other))
        largest = max(apart.values(), default=0.0)
        cells.append(Again(study, _named(one.cell), equal, before, now, largest))
    return Repeat(drawn_by(stores), cells, environment.processor())


def _bits(record: Record) -> tuple[Any, ...]:
    """Return the fields of a stored run that an exact repetition must reproduce to the bit."""
    return record.outcomes, record.losses, record.parameters, record.failure


def _apart(one: Record, other: Record) -> dict[int, float]:
    """Return the absolute difference between the mean outcomes of two runs, by text length."""
    first, second = analysis.outcomes_graded(one), analysis.outcomes_graded(other)
    return {n: abs(first[n].mean - second[n].mean) for n in first if n in second}


def _refuse_far(
    contents: Contents,
    study: str,
    stored: Record,
    again: Record,
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Raise BoardError if a repeated run differs from its stored outcomes by more than allowed."""
    cell, named, here = stored.cell, _named(stored.cell), environment.processor()
    made_by = {"code": environment.code(), "torch": torch.__version__, "posenc": __version__}
    same = "device" not in contents.sources and all(
        contents.sources.get(name) == value for name, value in made_by.items()
    )
    if same and contents.sources.get("processor") == here:
        part = "losses" if stored.outcomes == again.outcomes else "outcomes"
        raise BoardError(
            f"{named} must have equal {part} with the same code on the same processor, got others."
            " The store is rejected."
        )
    if (stored.failure is None) != (again.failure is None):
        raise BoardError(f"{named} failed in one of two trainings. The store is rejected.")
    allowed = _spread(rows, study, cell.task)
    for n, apart in _apart(stored, again).items():
        if n not in allowed:
            raise BoardError(
                f"{named} was trained on another processor, and the board has no baselines at n ="
                f" {n} that were equal to the bit on {here}. Add a store from this processor first."
            )
        if apart > max(NEAR, allowed[n]):
            raise BoardError(
                f"{named} must differ by at most {max(NEAR, allowed[n]):.4f} at n = {n}, as seeds"
                f" of the board's baselines do, got {apart:.4f}. The store is rejected."
            )


def _spread(rows: Sequence[Mapping[str, Any]], study: str, task: str) -> dict[int, float]:
    """Return the largest difference between seeds of the baselines on one task, by length.

    Only stores whose repeated cells were all equal to the bit are used.
    """
    spread: dict[int, float] = {}
    for row in rows:
        if not all(cell["equal"] for cell in row["repeat"]["cells"]):
            continue
        for one in row["studies"][study]["rows"]:
            baseline = not is_entry(one["name"]) and not one["name"].endswith(READINGS)
            if one["task"] == task and baseline:
                for n, value in one["spread"].items():
                    spread[int(n)] = max(spread.get(int(n), 0.0), value)
    return spread


def _mean(record: Record) -> float:
    """Return the mean of a run's graded outcomes over all text lengths."""
    graded = analysis.outcomes_graded(record)
    return sum(outcome.mean for outcome in graded.values()) / max(1, len(graded))


def _named(cell: Cell) -> str:
    trial = f" at rate {cell.profile.rate:g}" if cell.seed > MOST_SEEDS else ""
    return f"{cell.task} {cell.name}, seed {cell.seed}{trial}"


def outcomes_of(stores: Mapping[str, Contents]) -> dict[str, str]:
    """Return the digest of the outcomes of each study, by the study's name."""
    return {name: contents.digest for name, contents in stores.items()}


def board_row(suite: Suite, stores: Mapping[str, Contents], again: Repeat) -> dict[str, Any]:
    """Return the board's row for verified stores and for the repeated training runs."""
    first = next(iter(stores.values()))
    entry = _entry_of(Path(), first)
    kept = ("posenc", "torch", "code", "commit", "processor", "device")
    return {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "entry": entry,
        "entry_digest": first.sources.get(entry, ""),  # of its file, for code of the user
        "outcomes": outcomes_of(stores),
        "made_by": {name: first.sources.get(name, "") for name in kept},
        # Only `repeat` is reproduced; all other numbers are reported by the author
        "repeat": asdict(again),
        "studies": {name: _study(analysis.analyse(contents)) for name, contents in stores.items()},
    }


def _study(result: Analysis) -> dict[str, Any]:
    return {
        "hypothesis": result.hypothesis,
        "rows": [_row(row) for row in (*result.rows, *result.baselines)],
        "contrasts": [
            {
                "task": one.task,
                "sides": [list(one.one), list(one.other)],
                "difference": None if one.difference is None else asdict(one.difference),
                "p": one.adjusted,
                "decided": one.decided,
                "why_not": one.verdict,
            }
            for one in result.contrasts
        ],
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "task": row.task,
        "name": row.encoding,
        "unit": "bits" if row.bits else "share",
        "trained": row.trained,
        "rate": row.rate,
        "seeds": len(row.seeds),
        "failed": {str(seed): why for seed, why in row.failures.items()},
        "untrained": list(row.undertrained),  # seeds that do not pass the gate at n = L
        "area": None if row.value is None else asdict(row.value),
        "curve": {str(n): mean for n, mean in row.means.items()},
        "spread": {str(n): max(x) - min(x) for n, x in row.curve.items() if x},  # over seeds
        "parameters": row.parameters,
        "milliseconds": None if row.seconds is None else 1_000 * row.seconds,  # for a step
    }


def read(path: Path, suite: Suite) -> list[dict[str, Any]]:
    """Read the rows of a board; return an empty list if the file does not exist."""
    if not path.exists():
        return []
    try:
        held = json.loads(path.read_text("utf-8"))
        digest, rows = held["suite_digest"], held["rows"]
        if not isinstance(rows, list):
            raise TypeError("its rows must be a list")
        if digest == suite.digest:
            as_page(suite, rows)  # raises an error for a row that lacks an entry
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BoardError(f"{path} must be a board: {printable(str(error), 200)}.") from None
    if digest != suite.digest:
        raise BoardError(f"{path} must be the board of this suite, got that of {brief(digest)}.")
    return rows


def rows_before(folder: Path, suite: Suite, outcomes: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of a board that were added before the row with these outcomes.

    Raises BoardError if the board is invalid, or has these outcomes already.
    """
    path = folder / f"{suite.name}.json"
    rows = read(path, suite)
    if any(one["outcomes"] == outcomes for one in rows):
        raise BoardError(
            f"{path} must not have these outcomes yet, got a row with them. Add each store once."
        )
    return rows


def add(folder: Path, suite: Suite, row: Mapping[str, Any]) -> Path:
    """Add a row to the JSON file and to the page of a board; return the path of the page.

    Raises the BoardError of `rows_before`.
    """
    rows = [*rows_before(folder, suite, row["outcomes"]), dict(row)]
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{suite.name}.md"
    write_whole(folder / f"{suite.name}.json", as_json(suite, rows).encode())
    write_whole(page, as_page(suite, rows).encode())
    return page


def as_json(suite: Suite, rows: Sequence[Mapping[str, Any]]) -> str:
    content = {"suite": suite.name, "suite_digest": suite.digest, "rows": rows}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def as_page(suite: Suite, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the board as Markdown, with a table of all rows for each task."""
    lines = [
        f"# The board of suite {suite.name}{', a draft' * bool(suite.draft)}\n",
        *([f"**{suite.name} is a draft.** {suite.draft}\n"] if suite.draft else []),
        "Written by `python -m studies.arena`; the rules: docs/studies.md."
        f" Suite `{suite.digest[:16]}…`.",
        "Rows are in the order in which they were added; a smaller number is not a decided",
        "difference. `entry` is the measured encoding. **Reproduced by us** are the cells named in",
        "the first table, which were trained again for this board. All other numbers and times are",
        "**reported by the author** of the entry.",
    ]
    if not rows:
        return "\n".join([*lines, "", "No store has been added yet."]) + "\n"
    lines += [
        "",
        "| entry | processor, as reported | posenc, torch | reproduced by us | outcomes |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        made, again = row["made_by"], row["repeat"]
        processor = f"{made['processor']}{', trained on ' * bool(made['device'])}{made['device']}"
        cells = "; ".join(
            f"{x['cell']} ({x['study']}): {describe_repeat(x)}" for x in again["cells"]
        )
        cell = f"on {again['processor']}: {cells}"
        digests = ", ".join(f"{name} `{x[:12]}…`" for name, x in row["outcomes"].items())
        words = [
            row["entry"],
            processor,
            f"{made['posenc']}, {made['torch']}",
            cell,
            digests,
        ]
        lines.append(f"| {' | '.join(map(_plain, words))} |")
    for study in suite.studies:
        lines += _tables(study, rows)
    return "\n".join(lines) + "\n"


def describe_repeat(again: Mapping[str, Any]) -> str:
    """Describe whether a repeated run equals the stored one, and how far they differ."""
    if again["equal"]:
        return "losses and outcomes equal to the bit"
    means = f"{again['again']:.4f}, stored {again['stored']:.4f}"
    return f"{means}, up to {again['apart']:.4f} apart at one length"


def _tables(study: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return Markdown tables of one study, one per task, with the decisions on its contrasts."""
    lines = []
    first = rows[0]["studies"][study]["rows"]
    for task in dict.fromkeys(one["task"] for one in first):
        some = next(one for one in first if one["task"] == task)
        lengths = [n for n in some["curve"] if int(n) >= (some["trained"] or 0)]
        unit = "bits per character" if some["unit"] == "bits" else "texts all right, %"
        lines.append(f"\n## {study}: {task}, L = {some['trained']}, {unit}\n")
        heads = [
            "arena of",
            "row",
            "L…2L",
            "trained at n = L",
            "rate",
            "parameters",
            "ms a step",
            *(f"n = {n}" for n in lengths),
        ]
        lines += [f"| {' | '.join(heads)} | |", f"|{'---|' * (len(heads) + 1)}"]
        for row in rows:
            for one in row["studies"][study]["rows"]:
                if one["task"] == task:
                    lines.append(_line(row["entry"], one, lengths))
        lines.append("")
        for row in rows:
            hypothesis = _plain(row["studies"][study]["hypothesis"])
            lines.append(f"- {_plain(row['entry'])}, hypothesis, as registered: *{hypothesis}*")
            for one in row["studies"][study]["contrasts"]:
                if one["task"] == task:
                    lines.append(f"- {_plain(row['entry'])}: {_contrast(one, some['unit'])}")
    return lines


def _line(entry: str, one: Mapping[str, Any], lengths: Sequence[str]) -> str:
    passed = one["seeds"] - len(one["untrained"])
    notes = [f"seed {seed} failed: {why}" for seed, why in one["failed"].items()]
    gate = "" if one["unit"] == "bits" else f"{passed} of {one['seeds']} seeds"
    rate = "" if one["rate"] is None else f"{one['rate']:g}"
    curve = [_number(one["curve"].get(n), one["unit"]) for n in lengths]
    words = [
        entry,
        one["name"],
        _interval(one["area"], one["unit"]),
        gate,
        rate,
        "" if one["parameters"] is None else f"{one['parameters']:,}",
        "" if one["milliseconds"] is None else f"{one['milliseconds']:.1f}",
        *curve,
        "; ".join(notes),
    ]
    return f"| {' | '.join(map(_plain, words))} |"


def _contrast(one: Mapping[str, Any], unit: str) -> str:
    sides = " − ".join(" + ".join(side) for side in one["sides"])
    if one["difference"] is None:
        return f"{sides}: {one['why_not']}"
    verdict = one["why_not"] or ("decided" if one["decided"] else "no difference shown")
    return (
        f"{sides}: {_interval(one['difference'], unit, '+')}, p = {one['p']:.2g} by Holm; {verdict}"
    )


def _interval(value: Mapping[str, float] | None, unit: str, sign: str = "") -> str:
    if value is None:
        return ""
    low, high = (_number(value[end], unit, sign) for end in ("low", "high"))
    return f"{_number(value['value'], unit, sign)} [{low}, {high}]"


def _number(value: float | None, unit: str, sign: str = "") -> str:
    if value is None:
        return ""
    return f"{value:{sign}.3f}" if unit == "bits" else f"{100 * value:{sign}.1f}"


def _plain(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    return printable(text, 300).replace("|", "\\|").replace("<", "&lt;")
