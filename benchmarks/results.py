"""Result types of the benchmarks: rows, tables and targets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from benchmarks.timing import Times, malloc

OURS = "posenc"


@dataclass(frozen=True)
class TimedRow:
    """The measurements of one implementation in a benchmark."""

    name: str
    times: Times
    ratio: float  # median time, divided by that of the limit
    error: float | None = None  # largest difference from the reference, over its largest number
    memory: float | None = None  # peak memory in MB, without the inputs

    @property
    def ours(self) -> bool:
        return self.name.startswith(OURS)


@dataclass(frozen=True)
class Target:
    """A performance target: an upper bound, set in advance, and the measured number."""

    what: str
    found: float
    most: float

    @property
    def met(self) -> bool:
        return self.found <= self.most


@dataclass(frozen=True)
class BenchTable:
    """The measurements of several implementations of one computation, made in one run."""

    part: str  # rotation, attention, …
    case: str  # shapes, dtype, forward or training
    limit: str  # name of the row by which all times are divided
    rows: list[TimedRow]
    skipped: dict[str, str]  # missing implementations, with the reasons
    malloc: str
    threads: int
    targets: list[Target] = field(default_factory=list)

    def row(self, name: str) -> TimedRow | None:
        """Return the row with this name, or the first row whose name starts with this text."""
        exact = (row for row in self.rows if row.name == name)
        return next(exact, next((row for row in self.rows if row.name.startswith(name)), None))


def table(
    part: str,
    case: str,
    limit: str,
    times: Mapping[str, Times],
    skipped: dict[str, str],
    errors: Mapping[str, float | None] | None = None,
    memory: Mapping[str, float] | None = None,
    limit_of: Callable[[str], str] | None = None,
) -> BenchTable:
    """Make a table from times; `limit_of` names the limit of each row if there are several."""
    errors, memory = errors or {}, memory or {}
    rows = []
    for name, t in times.items():
        ratio = t.median / times[limit_of(name) if limit_of else limit].median
        rows.append(TimedRow(name, t, ratio, errors.get(name), memory.get(name)))
    rows.sort(key=lambda row: row.ratio)
    return BenchTable(part, case, limit, rows, skipped, malloc(), torch.get_num_threads())
