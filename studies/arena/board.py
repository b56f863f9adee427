"""The board: stores of the arena that were verified, a row each, as JSON and as a page.

verify      every study of the suite is there and complete, by the suite's own plans, with the
            checksums of its outcomes, from one version of the code, without a deviation
repeat      four cells, which follow from the digests of the stores, are trained again here: on the
            same processor with the same code, losses and outcomes must be equal bit by bit;
            elsewhere, no farther off at any length than seeds of the board's own baselines are
add         a row: of each task, area, curve, gate and rate of the entry and of the rows that
            were run beside it, and what the contrasts decide

No code of an entry runs in the process that does this: `studies.arena.training` has its own.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import torch

from posenc.lab.study import analysis, execute, origin, own_code, store
from posenc.lab.study.analysis import Analysis, Row
from posenc.lab.study.cell import Cell
from posenc.lab.study.plan import MOST_SEEDS, Plan
from posenc.lab.study.store import Contents, Record
from posenc.support.arguments import brief
from posenc.support.text import printable
from posenc.support.version import __version__
from posenc.support.writing import write_whole
from studies.arena import training
from studies.arena.suite import ENTRY, OBLIGATORY, Suite

NEAR = 0.02  # of right answers, or bits: a cell may differ by as much elsewhere
REPEATED = 4  # cells that are trained again, two of them the entry's

TrainAgain = Callable[[Sequence[Cell], training.Say], Sequence[Record]]


class BoardError(ValueError):
    """A store that cannot stand on the board, or a board that is none; the message says why."""


@dataclass(frozen=True)
class Again:
    """A cell that was trained again, and how it came out."""

    study: str
    cell: str
    equal: bool  # losses and outcomes, bit by bit
    stored: float  # the mean of all its outcomes, as it is graded
    again: float
    apart: float  # the largest difference of the means at one length


@dataclass(frozen=True)
class Repeat:
    """The cells that were trained again, and where."""

    drawn: str  # the digest that chose them
    cells: Sequence[Again]
    processor: str

    @property
    def equal(self) -> bool:
        """True if every cell came out equal bit by bit."""
        return all(cell.equal for cell in self.cells)


def verify(folder: Path, suite: Suite, allow_code: own_code.Allowed = ()) -> dict[str, Contents]:
    """Read the stores of a suite in a folder. Raises BoardError, in one sentence, for any flaw.

    A store that is damaged raises StoreError, and code of an entry that nobody allows CodeRefused.
    """
    stores = {name: store.read(folder / name) for name in suite.studies}
    entry = _entry_of(folder, next(iter(stores.values())))
    plans = suite.plans(entry)
    own_code.check([entry], allow_code, folder, next(iter(stores.values())).sources)
    for name, contents in stores.items():
        where = folder / name
        digests = [(digest, sha256(text.encode()).hexdigest()) for digest, text in contents.plans]
        if not contents.checked:
            raise BoardError(
                f"{where} is a store of format 1, without checksums of its outcomes: run the same"
                " `python -m studies.arena` on it, which writes them."
            )
        if any(digest != of_text for digest, of_text in digests):
            raise BoardError(f"{where}: a plan is not that of its digest.")
        if len(digests) != 1 or _plan(contents) != plans[name]:
            raise BoardError(f"{where} is of another plan than suite {suite.name} has for {entry}.")
        if contents.deviations:
            raise BoardError(f"{where} departs from its plan: {contents.deviations[0]}")
        result, rates = analysis.analyse(contents), analysis.chosen_rates(plans[name], contents)
        if lacking := [
            row.encoding for row in result.rows if (row.task, row.encoding) not in rates
        ]:
            raise BoardError(
                f"{where} lacks trials of the rate of {lacking[0]}: the same command goes on."
            )
        if result.done < result.of:
            raise BoardError(
                f"{where} has {result.done} of {result.of} cells: the same command goes on."
            )
        _refuse_other_cells(where, plans[name], contents, rates)
        if changed := origin.changed(next(iter(stores.values())).sources, contents.sources):
            raise BoardError(f"{where} was made otherwise than the other studies: {changed}.")
    return stores


def _refuse_other_cells(
    where: Path, plan: Plan, contents: Contents, rates: Mapping[tuple[str, str], float]
) -> None:
    """Refuse cells that the plan does not have, for one of all is drawn; and tests left out."""
    wanted = {execute.at_its_rate(cell, rates).digest for cell in execute.cells_of(plan)}
    if other := [x for name, x in contents.records.items() if name not in wanted]:
        raise BoardError(
            f"{where} has {_named(other[0].cell)}, which is no cell of its plan: leave it out."
        )
    for record in contents.records.values():
        graded = analysis.outcomes_graded(record)
        whole = {n: record.cell.profile.prompts for n in record.cell.tested}
        if record.failure is None and {n: x.prompts for n, x in graded.items()} != whole:
            raise BoardError(
                f"{where}: {_named(record.cell)} lacks outcomes of some lengths or prompts that its"
                " plan asks for."
            )


def _entry_of(folder: Path, contents: Contents) -> str:
    """The encoding that takes part, as the plan of a store names it."""
    plan = _plan(contents)
    rows = [] if plan is None else [row for row in plan.encodings if row.name == ENTRY]
    if not rows:
        raise BoardError(f"{folder} has no row called {ENTRY}: it is no store of the arena.")
    return rows[0].encoding


def _plan(contents: Contents) -> Plan | None:
    return analysis.plan_of(contents)


def drawn_by(stores: Mapping[str, Contents]) -> str:
    """The SHA-256 of the digests of all outcomes, from which the cells to repeat follow."""
    digests = "".join(f"{name} {digest}\n" for name, digest in sorted(outcomes_of(stores).items()))
    return sha256(digests.encode()).hexdigest()


def to_repeat(stores: Mapping[str, Contents], count: int = REPEATED) -> list[tuple[str, str]]:
    """Choose the cells to train again, as study and digest: two of the entry's, then any others.

    Those two are tested beyond the trained length. Nothing but the stores decides the choice.
    """
    everything = [(name, cell) for name in sorted(stores) for cell in sorted(stores[name].records)]
    entries = [
        (name, digest)
        for name, digest in everything
        if (cell := stores[name].records[digest].cell).name == ENTRY
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
    train_again: TrainAgain = training.apart,
    progress: training.Say = lambda *_: None,
) -> Repeat:
    """Train cells again that follow from the stores. Raises BoardError if one is not the same.

    `rows` are those that the board has. `count` is the number of cells, four or more.
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
    return Repeat(drawn_by(stores), cells, origin.processor())


def _bits(record: Record) -> tuple[Any, ...]:
    """All of a record that training the same cell again makes equal bit by bit."""
    return record.outcomes, record.losses, record.parameters, record.failure


def _apart(one: Record, other: Record) -> dict[int, float]:
    """The difference of two records by length, as they are graded."""
    first, second = analysis.outcomes_graded(one), analysis.outcomes_graded(other)
    return {n: abs(first[n].mean - second[n].mean) for n in first if n in second}


def _refuse_far(
    contents: Contents,
    study: str,
    stored: Record,
    again: Record,
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Refuse another outcome where there is no reason for one, or one that is too far off."""
    cell, named, here = stored.cell, _named(stored.cell), origin.processor()
    made_by = {"code": origin.code(), "torch": torch.__version__, "posenc": __version__}
    same = "device" not in contents.sources and all(
        contents.sources.get(name) == value for name, value in made_by.items()
    )
    if same and contents.sources.get("processor") == here:
        part = "losses" if stored.outcomes == again.outcomes else "outcomes"
        raise BoardError(
            f"{named} came out with other {part}, with the same code on the same processor: the"
            " store is refused."
        )
    if (stored.failure is None) != (again.failure is None):
        raise BoardError(f"{named} failed in one of two trainings: the store is refused.")
    allowed = _spread(rows, study, cell.task)
    for n, apart in _apart(stored, again).items():
        if n not in allowed:
            raise BoardError(
                f"{named} was trained elsewhere, and the board has no baselines at n = {n} that"
                f" were equal bit by bit on {here}: add a store from this processor first."
            )
        if apart > max(NEAR, allowed[n]):
            raise BoardError(
                f"{named} differs by {apart:.4f} at n = {n}, and seeds of the board's baselines by"
                f" {max(NEAR, allowed[n]):.4f}: the store is refused."
            )


def _spread(rows: Sequence[Mapping[str, Any]], study: str, task: str) -> dict[int, float]:
    """The largest difference between seeds of the board's baselines by length, on one task.

    Only rows of stores whose cells were all equal bit by bit when they were trained again count.
    """
    spread: dict[int, float] = {}
    for row in rows:
        if not all(cell["equal"] for cell in row["repeat"]["cells"]):
            continue
        for one in row["studies"][study]["rows"]:
            if one["task"] == task and one["name"] in OBLIGATORY:
                for n, value in one["spread"].items():
                    spread[int(n)] = max(spread.get(int(n), 0.0), value)
    return spread


def _mean(record: Record) -> float:
    """The mean over all lengths, as a record is graded."""
    graded = analysis.outcomes_graded(record)
    return sum(outcome.mean for outcome in graded.values()) / max(1, len(graded))


def _named(cell: Cell) -> str:
    trial = f" at rate {cell.profile.rate:g}" if cell.seed > MOST_SEEDS else ""
    return f"{cell.task} {cell.name}, seed {cell.seed}{trial}"


def outcomes_of(stores: Mapping[str, Contents]) -> dict[str, str]:
    """The digests of the outcomes, by study."""
    return {name: contents.digest for name, contents in stores.items()}


def board_row(suite: Suite, stores: Mapping[str, Contents], again: Repeat) -> dict[str, Any]:
    """The row of verified stores: everything on it is computed from them, but for `again`."""
    first = next(iter(stores.values()))
    entry = _entry_of(Path(), first)
    kept = ("posenc", "torch", "code", "commit", "processor", "device")
    return {
        "suite": suite.name,
        "suite_digest": suite.digest,
        "entry": entry,
        "entry_digest": first.sources.get(entry, ""),  # of its file, where it is one's own
        "outcomes": outcomes_of(stores),
        "made_by": {name: first.sources.get(name, "") for name in kept},
        "repeat": asdict(again),  # trained by whoever adds the row; all else is its maker's word
        "studies": {name: _study(analysis.analyse(contents)) for name, contents in stores.items()},
    }


def _study(result: Analysis) -> dict[str, Any]:
    return {
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
        "untrained": list(row.undertrained),  # the seeds that do not pass the gate at n = L
        "area": None if row.value is None else asdict(row.value),
        "curve": {str(n): mean for n, mean in row.means.items()},
        "spread": {str(n): max(x) - min(x) for n, x in row.curve.items() if x},  # of its seeds
        "parameters": row.parameters,
        "milliseconds": None if row.seconds is None else 1_000 * row.seconds,  # of a step
    }


def read(path: Path, suite: Suite) -> list[dict[str, Any]]:
    """Read the rows of a board; of a file that is not there, none."""
    if not path.exists():
        return []
    try:
        held = json.loads(path.read_text("utf-8"))
        digest, rows = held["suite_digest"], held["rows"]
        if not isinstance(rows, list):
            raise TypeError("its rows are no list")
        if digest == suite.digest:
            as_page(suite, rows)  # with all that a row has
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BoardError(f"{path} is no board: {printable(str(error), 200)}.") from None
    if digest != suite.digest:
        raise BoardError(f"{path} is the board of another suite, {brief(digest)}.")
    return rows


def rows_before(folder: Path, suite: Suite, outcomes: Mapping[str, str]) -> list[dict[str, Any]]:
    """Read the rows of the board in a folder, to which these outcomes are to come.

    Raises BoardError where it is no board of the suite, or has them already.
    """
    path = folder / f"{suite.name}.json"
    rows = read(path, suite)
    if any(one["outcomes"] == outcomes for one in rows):
        raise BoardError(f"{path} has these outcomes already: a store is on a board once.")
    return rows


def add(folder: Path, suite: Suite, row: Mapping[str, Any]) -> Path:
    """Add a row to the board in a folder, written as JSON and as a page; return the page.

    Raises BoardError as `rows_before` does.
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
    """Write the board as Markdown: of each task a table with every row, and their curves."""
    lines = [
        f"# The board of suite {suite.name}{', a draft' * bool(suite.draft)}\n",
        *([f"**{suite.name} is a draft.** {suite.draft}\n"] if suite.draft else []),
        "Written by `python -m studies.arena --add`; the rules: docs/studies.md."
        f" Suite `{suite.digest[:16]}…`.",
        "Rows stand in the order in which they were added: a smaller number is no decided",
        "difference. `entry` is what takes part, the others were run beside it, on its machine.",
    ]
    if not rows:
        return "\n".join([*lines, "", "No store has been added yet."]) + "\n"
    lines += [
        "",
        "| entry | said by its maker: processor | posenc, torch | trained again by us | outcomes |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        made, again = row["made_by"], row["repeat"]
        processor = f"{made['processor']}{', trained on ' * bool(made['device'])}{made['device']}"
        cells = "; ".join(f"{x['cell']} ({x['study']}): {in_words(x)}" for x in again["cells"])
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


def in_words(again: Mapping[str, Any]) -> str:
    """Say how a cell came out that was trained again."""
    if again["equal"]:
        return "losses and outcomes equal bit by bit"
    means = f"{again['again']:.4f}, stored {again['stored']:.4f}"
    return f"{means}, up to {again['apart']:.4f} apart at one length"


def _tables(study: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tables of one study, by task: area, gate, rate, curve; then what its contrasts decide."""
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
            "ms a step, said by its maker",
            *(f"n = {n}" for n in lengths),
        ]
        lines += [f"| {' | '.join(heads)} | |", f"|{'---|' * (len(heads) + 1)}"]
        for row in rows:
            for one in row["studies"][study]["rows"]:
                if one["task"] == task:
                    lines.append(_line(row["entry"], one, lengths))
        lines.append("")
        for row in rows:
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
    """A cell of a table of Markdown, whatever an entry is called."""
    return printable(text, 300).replace("|", "\\|").replace("<", "&lt;")
