"""Comparison of a repeated study with its first run, by row and by training run.

    equal    cells with the same settings whose outcomes are equal to the bit for every prompt
    agrees   the mean of the repetition is within the interval of the first run, over common seeds

On one machine, with the same versions of code and torch, cells are equal. On another machine sums
are computed in another order, so trainings diverge, and means agree like those of other seeds.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from posenc.lab.study.analysis import Row, analyse
from posenc.lab.study.statistics import Interval
from posenc.lab.study.store import Contents, Record


@dataclass(frozen=True)
class Repeated:
    """The results of one row of a study, in its first run and in the repetition."""

    task: str
    encoding: str
    bits: bool
    seeds: int  # seeds that both studies have
    first: Interval | None
    again: Interval | None
    equal: int  # number of equal cells
    both: int  # number of cells with the same settings in both studies
    agrees: bool | None  # None if one of them has no outcome

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def repetition(again: Contents, first: Contents, protocol: str | None = None) -> list[Repeated]:
    """Compare the rows and seeds that a repetition and the first run have in common.

    - `again`, `first`: contents of the repetition and of the first run
    - `protocol`: protocol that is graded; None: the first of each task

    Raises ValueError if they have no run in common, or different metrics.
    """
    runs = {_run(record) for record in again.records.values()}
    runs &= {_run(record) for record in first.records.values()}
    again, first = _only(again, runs), _only(first, runs)
    repeated, original = analyse(again, protocol), analyse(first, protocol)
    if repeated.metric != original.metric:
        raise ValueError(
            f"the repetition must have the metric of the first run, {original.metric!r}, got"
            f" {repeated.metric!r}. Run the same plan."
        )
    if not runs:
        raise ValueError(
            "the repetition must have tasks, encodings and seeds of the first run, got others. Run"
            " the same plan."
        )
    rows = {(row.task, row.encoding): row for row in repeated.rows}
    return [
        _repeated(rows[place], row, again, first)
        for row in original.rows
        if row.seeds and (place := (row.task, row.encoding)) in rows
    ]


def equal_cells(again: Contents, first: Contents) -> tuple[int, int]:
    """Return the number of training runs with equal outcomes, and of those in both studies."""
    both = again.records.keys() & first.records.keys()
    return sum(_equal(again.records[cell], first.records[cell]) for cell in both), len(both)


def _equal(again: Record, first: Record) -> bool:
    """Test whether two runs have equal outcomes in the evaluation protocols that both have."""
    common = {protocol for protocol, _ in again.outcomes} & {p for p, _ in first.outcomes}
    kept = [
        {place: outcome for place, outcome in one.outcomes.items() if place[0] in common}
        for one in (again, first)
    ]
    return kept[0] == kept[1] and bool(common) == bool(again.outcomes or first.outcomes)


def _repeated(repeated: Row, original: Row, again: Contents, first: Contents) -> Repeated:
    runs = {(original.task, original.encoding, seed) for seed in original.seeds}
    equal, both = equal_cells(_only(again, runs), _only(first, runs))
    agrees = None
    if repeated.value and original.value:
        agrees = original.value.low <= repeated.value.value <= original.value.high
    return Repeated(
        original.task,
        original.encoding,
        original.bits,
        len(original.seeds),
        original.value,
        repeated.value,
        equal,
        both,
        agrees,
    )


def _run(record: Record) -> tuple[str, str, int]:
    return record.cell.task, record.cell.name, record.cell.seed


def _only(contents: Contents, runs: set[tuple[str, str, int]]) -> Contents:
    kept = {name: record for name, record in contents.records.items() if _run(record) in runs}
    return replace(contents, records=kept)
