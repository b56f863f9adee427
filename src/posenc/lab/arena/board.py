"""The board: stores of the arena that were verified, a row each, as JSON and as a page.

verify      every study of the suite is there and complete, by the suite's own plans, with the
            checksums of its outcomes, from one version of the code, without a deviation
repeat      one cell, chosen at random, is trained again here: on the same processor with the
            same code it must come out equal bit by bit; elsewhere, no farther from what is
            stored than the seeds of its row are from each other
add         a row: of each task, area, curve, gate and rate of the entry and of the rows that
            were run beside it, and what the contrasts decide
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import torch

from posenc.core.arguments import brief
from posenc.core.text import printable
from posenc.core.threads import threads
from posenc.core.version import __version__
from posenc.lab.arena.suite import ENTRY, Suite
from posenc.lab.study import analysis, execute, origin, own_code, store, train
from posenc.lab.study.analysis import Analysis, Row
from posenc.lab.study.cell import Cell
from posenc.lab.study.checkpoints import write_whole
from posenc.lab.study.plan import MOST_SEEDS, Plan
from posenc.lab.study.store import Contents, Record

NEAR = 0.02  # of right answers, or bits: a cell may differ by as much elsewhere, or as its seeds do


class BoardError(ValueError):
    """A store that cannot stand on the board, or a board that is none; the message says why."""


@dataclass(frozen=True)
class Repeat:
    """A cell that was trained again, and how it came out."""

    drawn: int  # what chose it: `Random(drawn)`
    study: str
    cell: str
    equal: bool  # bit by bit
    stored: float  # the mean of all its outcomes, as it is graded
    again: float
    processor: str


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
                f"{where} lacks trials of the rate of {lacking[0]}: the same `posenc arena` goes"
                " on."
            )
        if result.done < result.of:
            raise BoardError(
                f"{where} has {result.done} of {result.of} cells: the same `posenc arena` goes on."
            )
        _refuse_other_cells(where, plans[name], contents, rates)
        if changed := origin.changed(next(iter(stores.values())).sources, contents.sources):
            raise BoardError(f"{where} was made otherwise than the other studies: {changed}.")
    return stores


def _refuse_other_cells(
    where: Path, plan: Plan, contents: Contents, rates: Mapping[tuple[str, str], float]
) -> None:
    """Refuse cells that the plan does not have, for one of all is drawn; and tests left out."""
    wanted = {execute.at_its_rate(cell, rates).digest for cell in execute.resolved(plan)}
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


def repeat(
    stores: Mapping[str, Contents],
    drawn: int,
    runner: execute.Runner = train.run,
    progress: Callable[[Cell, Any], None] = lambda cell, far: None,
) -> Repeat:
    """Train a cell again that `drawn` chooses of all. Raises BoardError if it is not the same."""
    everything = [
        (study, cell) for study in sorted(stores) for cell in sorted(stores[study].records)
    ]
    study, name = Random(drawn).choice(everything)
    contents = stores[study]
    record = contents.records[name]
    cell = record.cell
    with TemporaryDirectory() as folder, threads(1):  # as where it was trained first
        event = execute.run_cell(
            cell, runner, Path(folder), lambda: False, lambda far: progress(cell, far)
        )
    if event.kind != "done":
        raise BoardError(f"{_named(cell)} could not be trained again: {event.value}")
    again: Record = event.value[0]
    equal = (again.outcomes, again.failure) == (record.outcomes, record.failure)
    one, other = (0.0 if one.failure else _mean(one) for one in (record, again))
    here = origin.processor()
    if not equal:
        _refuse_far(contents, cell, one, other, here)
    return Repeat(drawn, study, _named(cell), equal, one, other, here)


def _refuse_far(contents: Contents, cell: Cell, stored: float, again: float, here: str) -> None:
    """Refuse another outcome where there is no reason for one, or one that is too far off."""
    made_by = {"code": origin.code(), "torch": torch.__version__, "posenc": __version__}
    same = "device" not in contents.sources and all(
        contents.sources.get(name) == value for name, value in made_by.items()
    )
    said = f"{_named(cell)} came out as {again:.4f} again, and {stored:.4f} is stored"
    if same and contents.sources.get("processor") == here:
        raise BoardError(f"{said}, with the same code on the same processor: the store is refused.")
    seeds = [
        _mean(one)
        for one in contents.records.values()
        if (one.cell.task, one.cell.name, one.cell.profile) == (cell.task, cell.name, cell.profile)
        and one.failure is None
        and (one.cell.seed > MOST_SEEDS) == (cell.seed > MOST_SEEDS)
    ]
    apart = max(NEAR, max(seeds, default=0.0) - min(seeds, default=0.0))
    if abs(again - stored) > apart:
        raise BoardError(
            f"{said}: farther apart than {apart:.4f}, as the seeds of its row are from each other:"
            " the store is refused."
        )


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
        "repeat": asdict(again),
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
        f"# The board of suite {suite.name}\n",
        f"Written by `posenc arena --add`; the rules: docs/arena.md. Suite `{suite.digest[:16]}…`.",
        "Rows stand in the order in which they were added: a smaller number is no decided",
        "difference. `entry` is what takes part, the others were run beside it, on its machine.",
    ]
    if not rows:
        return "\n".join([*lines, "", "No store has been added yet."]) + "\n"
    lines += [
        "",
        "| entry | processor | posenc, torch | trained again | outcomes |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        made, again = row["made_by"], row["repeat"]
        how = (
            "equal bit by bit"
            if again["equal"]
            else f"{again['again']:.4f} for {again['stored']:.4f}"
        )
        processor = f"{made['processor']}{', trained on ' * bool(made['device'])}{made['device']}"
        cell = f"{again['cell']} ({again['study']}, drawn by {again['drawn']}): {how}"
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
