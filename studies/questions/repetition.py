"""Compare a study that was run again with the first: does each row agree within its interval?

    equal    cells of the same settings whose outcomes are the same for every prompt, bit by bit
    agrees   the mean of the repetition lies within the interval of the first, over the same seeds

On one machine, with one version of the code and of torch, cells are equal. Elsewhere sums are
formed in another order, a training parts from its path, and means agree as those of other seeds do.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from posenc.lab.study.analysis import Row, analyse
from posenc.lab.study.statistics import Interval
from posenc.lab.study.store import Contents, Record


@dataclass(frozen=True)
class Repeated:
    """A row of the table, of the first study and of its repetition."""

    task: str
    encoding: str
    bits: bool
    seeds: int  # seeds that both studies have
    first: Interval | None
    again: Interval | None
    equal: int  # cells, of those below
    both: int  # cells of the same settings in both studies
    agrees: bool | None  # None where one of them has not measured it

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def repetition(again: Contents, first: Contents, protocol: str | None = None) -> list[Repeated]:
    """Compare each row that both have, over the seeds that both have, by the first's metric.

    Raises ValueError where they have no run in common, or measure different things.
    """
    runs = {_run(record) for record in again.records.values()}
    runs &= {_run(record) for record in first.records.values()}
    again, first = _only(again, runs), _only(first, runs)
    repeated, original = analyse(again, protocol), analyse(first, protocol)
    if repeated.metric != original.metric:
        raise ValueError(
            f"a repetition has the metric of the first, {original.metric!r}, got"
            f" {repeated.metric!r}: run the same plan."
        )
    if not runs:
        raise ValueError("a repetition has tasks, encodings and seeds of the first, got others.")
    rows = {(row.task, row.encoding): row for row in repeated.rows}
    return [
        _repeated(rows[place], row, again, first)
        for row in original.rows
        if row.seeds and (place := (row.task, row.encoding)) in rows
    ]


def equal_cells(again: Contents, first: Contents) -> tuple[int, int]:
    """Count the cells of the same settings with the same outcomes, and those that both have."""
    both = again.records.keys() & first.records.keys()
    return sum(_equal(again.records[cell], first.records[cell]) for cell in both), len(both)


def _equal(again: Record, first: Record) -> bool:
    """Compare outcomes by the protocols that both have: a later version measures more of them."""
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
