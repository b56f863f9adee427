"""Results of a benchmark, apart from how they are shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from benchmarks.timing import Times, malloc

OURS = "posenc"


@dataclass(frozen=True)
class TimedRow:
    """One implementation, timed."""

    name: str
    times: Times
    ratio: float  # its median, over that of the limit
    error: float | None = None  # largest difference to the definition, over its largest number
    memory: float | None = None  # MB at the peak, beyond the inputs

    @property
    def ours(self) -> bool:
        return self.name.startswith(OURS)


@dataclass(frozen=True)
class Target:
    """A bound on one number that was set beforehand; the report says whether it is met."""

    what: str
    found: float
    most: float

    @property
    def met(self) -> bool:
        return self.found <= self.most


@dataclass(frozen=True)
class BenchTable:
    """Implementations of the same thing, measured in one run."""

    part: str  # rotation, attention, …
    case: str  # what exactly: shapes, dtype, forward or training
    limit: str  # the name of the row that all are divided by
    rows: list[TimedRow]
    skipped: dict[str, str]  # implementations left out, and why
    malloc: str
    threads: int
    targets: list[Target] = field(default_factory=list)

    def row(self, name: str) -> TimedRow | None:
        """The row of this name, or the first whose name begins with it."""
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
    """Make the table of times of this process; `limit_of` names the limit of a single row."""
    errors, memory = errors or {}, memory or {}
    rows = []
    for name, t in times.items():
        ratio = t.median / times[limit_of(name) if limit_of else limit].median
        rows.append(TimedRow(name, t, ratio, errors.get(name), memory.get(name)))
    rows.sort(key=lambda row: row.ratio)
    return BenchTable(part, case, limit, rows, skipped, malloc(), torch.get_num_threads())


@dataclass(frozen=True)
class Growth:
    """Seconds against tokens, and the exponent p of seconds ~ tokensᵖ by least squares of logs."""

    part: str
    name: str
    tokens: list[int]
    seconds: list[float]
    exponent: float
    last: float  # the exponent between the two longest
    megabytes: list[float] = field(default_factory=list)  # at the peak, where they were measured
    last_of_memory: float | None = None  # the exponent of memory between the two longest
    stopped: str = ""  # why no longer text was measured
