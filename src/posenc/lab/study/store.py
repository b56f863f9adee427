"""The store of a study: a SQLite database with every training run's result for each prompt.

    results.db     all outcomes, sorted and without times, so that two runs of a plan are byte-equal
    running.db     the same during a run, in SQLite's write-ahead mode, with a single writer
    times.jsonl    a line for each cell: when, where and how fast it ran

Bits are packed eight to a byte, the first prompt in the highest bit; other outcomes are float32 in
little-endian order, and losses are float64. The table `checksums` has a SHA-256 of each cell with
its outcomes, and one of plans, deviations and sources, so that a flipped bit is detected. Stores of
format 1 have no checksums.
"""

import json
import os
import sqlite3
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.lab.study import safe_files
from posenc.lab.study.cell import LONGEST, Cell, Result, digest_of
from posenc.support.arguments import brief
from posenc.support.text import printable
from posenc.support.writing import flush_folder, written_beside

FORMAT = 2  # format of the tables
MARK = 0x706F7365  # "pose", SQLite's application_id of a store
RESULTS, RUNNING, TIMES = "results.db", "running.db", "times.jsonl"
MOST_TIMES = 2**26  # bytes of times.jsonl that are read
TABLES = {
    "about": "format INTEGER NOT NULL",
    "plans": "number INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, text TEXT NOT NULL",
    "deviations": "number INTEGER PRIMARY KEY, what TEXT NOT NULL",
    "sources": "name TEXT PRIMARY KEY, digest TEXT NOT NULL",
    "cells": "digest TEXT PRIMARY KEY, settings TEXT NOT NULL, label TEXT NOT NULL,"
    " parameters INTEGER, losses BLOB NOT NULL, failure TEXT",
    "outcomes": "digest TEXT NOT NULL, protocol TEXT NOT NULL, length INTEGER NOT NULL,"
    " kind TEXT NOT NULL, prompts INTEGER NOT NULL, data BLOB NOT NULL,"
    " PRIMARY KEY (digest, protocol, length)",
}
CHECKSUMS = {"checksums": "part TEXT PRIMARY KEY, sha256 TEXT NOT NULL"}
# The statements that create the tables, by format
STATEMENTS = {
    number: {name: f"CREATE TABLE {name} ({columns})" for name, columns in tables.items()}
    for number, tables in ((1, TABLES), (FORMAT, TABLES | CHECKSUMS))
}
# The types of columns, which SQLite does not enforce
TYPES: dict[str, Sequence[Any]] = {
    "plans": (str, str),
    "deviations": (str,),
    "sources": (str, str),
    "cells": (str, str, str, int | None, bytes, str | None),
    "outcomes": (str, str, int, str, int, bytes),
    "checksums": (str, str),
}
REGISTERED = "registered"  # name of the checksum of plans, deviations and sources
BITS, NUMBERS = "bits", "float32"
RESTORE = "Restore a copy of the file, or run the study again."
PILOT = "pilot"  # name of the source that marks a store as a pilot, which is not evidence


class StoreError(ValueError):
    """Raised for a file that is damaged, is not a study's store, or has a newer format."""


class Outcome(NamedTuple):
    """The outcome of each prompt at one text length: right or wrong, or bits per character."""

    kind: str
    prompts: int
    data: bytes

    @classmethod
    def of(cls, values: Tensor) -> "Outcome":
        if values.ndim != 1 or values.dtype not in (torch.bool, torch.float32):
            raise TypeError(
                "`outcomes` must be vectors over prompts, of bool or float32, got"
                f" {values.dtype} of shape {tuple(values.shape)}."
            )
        listed = values.tolist()
        if values.dtype == torch.float32:
            return cls(NUMBERS, len(listed), _little_endian(array("f", listed)))
        written = "".join("1" if right else "0" for right in listed)
        size = -(-len(listed) // 8)
        return cls(BITS, len(listed), int(f"0{written:0<{8 * size}}", 2).to_bytes(size, "big"))

    @property
    def values(self) -> Tensor:
        """The outcome of each prompt, as a vector of bool or float32."""
        if self.kind == NUMBERS:
            return torch.tensor(_numbers("f", self.data), dtype=torch.float32)
        written = f"{int.from_bytes(self.data, 'big'):0{8 * len(self.data)}b}" if self.data else ""
        return torch.tensor([bit == "1" for bit in written[: self.prompts]], dtype=torch.bool)

    @property
    def mean(self) -> float:
        if self.kind == BITS:
            return int.from_bytes(self.data, "big").bit_count() / self.prompts
        return sum(_numbers("f", self.data)) / self.prompts


@dataclass(frozen=True)
class Record:
    """A finished training run: its settings, and its outcomes or the reason of its failure."""

    cell: Cell
    parameters: int | None
    losses: tuple[float, ...]
    failure: str | None  # reason; None: the cell did not fail
    outcomes: Mapping[tuple[str, int], Outcome]  # outcomes by protocol and length
    seconds: float | None = None  # median time of a step

    @classmethod
    def of(cls, cell: Cell, result: Result) -> "Record":
        """Make the record of a finished run.

        The run is a failure if one of its losses is not finite.
        """
        outcomes = {place: Outcome.of(values) for place, values in result.outcomes.items()}
        losses = tuple(result.losses)
        lost = next((n for n, loss in enumerate(losses, 1) if not isfinite(loss)), None)
        failure = (
            None if lost is None else f"mean loss {lost} of {len(losses)} is {losses[lost - 1]}"
        )
        return cls(cell, result.parameters, losses, failure, outcomes, result.seconds)


@dataclass(frozen=True)
class Contents:
    """All data in a study's database: plans, deviations from them, environment, training runs."""

    # Digests and texts of the plans, in the order in which they were registered
    plans: Sequence[tuple[str, str]]
    deviations: Sequence[str]
    sources: Mapping[str, str]  # versions, and digests of code and texts, by name
    records: Mapping[str, Record]  # records by the digest of their cell
    path: Path = field(default=Path(), compare=False)
    checked: bool = field(default=True, compare=False)  # False: format 1, which has no checksums

    @property
    def pilot(self) -> bool:
        """True if the plan was run as a pilot, which is not evidence."""
        return PILOT in self.sources

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the contents without times, commits and processors.

        A repetition with equal outcomes has the same digest, also with another version of SQLite.
        """
        sources = {
            name: x for name, x in self.sources.items() if name not in ("commit", "processor")
        }
        content = sha256(replace(self, sources=sources, records={}).registered)
        for name, record in sorted(self.records.items()):
            content.update(_bytes_of(name, record))
        return content.hexdigest()

    @property
    def registered(self) -> bytes:
        """The plans, deviations and environment as bytes, from which a checksum is computed."""
        parts = [*self.plans, *self.deviations, *sorted(self.sources.items())]
        return "".join(map(repr, parts)).encode()

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 checksums: one per training run, one for plans, deviations and environment."""
        parts = {name: _bytes_of(name, record) for name, record in self.records.items()}
        return {n: sha256(x).hexdigest() for n, x in {REGISTERED: self.registered, **parts}.items()}


def _bytes_of(name: str, record: Record) -> bytes:
    """Serialise a record for its checksum. Times are left out, because they vary between runs."""
    losses = _little_endian(array("d", record.losses)).hex()
    identity = (name, record.cell.label, record.parameters, losses, record.failure)
    return repr((identity, sorted(record.outcomes.items()))).encode()


class Store:
    """The only writer of a study's database. Methods return after the data is on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        running, results = folder / RUNNING, folder / RESULTS
        safe_files.check_files(folder / TIMES, results, running, *_logs(running))
        if not running.exists():
            for left in _logs(running):
                left.unlink(missing_ok=True)
            earlier = read(results) if results.exists() else Contents((), (), {}, {})
            _write_canonical(earlier, running)
        _renew(running)
        self._open = True
        with _explained(running):
            self._file = sqlite3.connect(running, isolation_level=None)
            # Check before setting WAL, which would change the header of a foreign file
            _check(self._file, running)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = FULL")

    @property
    def contents(self) -> Contents:
        return _contents(self._file, self.folder / RUNNING)

    @property
    def finished(self) -> set[str]:
        """The digests of the finished training runs, including failed ones."""
        rows = self._file.execute("SELECT settings FROM cells")
        # Computed anew, because this version may have settings that an earlier one lacked
        return {Cell.of(json.loads(settings)).digest for (settings,) in rows}

    def register(
        self, digest: str, text: str, sources: Mapping[str, str], deviation: str = ""
    ) -> None:
        """Store a plan, the environment and any deviation from the plan in one transaction.

        - `digest`, `text`: digest and text of the plan, which is not written twice
        - `sources`: versions, and digests of code and texts, by name
        - `deviation`: description of changes to a registered study; empty: none
        """
        with _explained(self.folder / RUNNING), _transaction(self._file):
            row = (digest, text)
            self._file.execute("INSERT OR IGNORE INTO plans (digest, text) VALUES (?, ?)", row)
            for item in sources.items():
                self._file.execute("INSERT OR REPLACE INTO sources VALUES (?, ?)", item)
            if deviation:
                _fill(self._file, "deviations (what)", [(deviation,)])
            whole = Contents(*_registered(self._file, self.folder / RUNNING), {})
            row = (REGISTERED, whole.checksums[REGISTERED])
            self._file.execute("INSERT OR REPLACE INTO checksums VALUES (?, ?)", row)

    def add(self, record: Record) -> None:
        """Store the outcomes of a training run."""
        with _explained(self.folder / RUNNING), _transaction(self._file):
            _insert(self._file, record)

    def clock(self, **line: Any) -> None:
        """Append times to times.jsonl.

        All other files of a study have the same bytes if the study is repeated.
        """
        data = f"{json.dumps(line)}\n".encode()
        with open(self.folder / TIMES, "ab+", opener=safe_files.opener) as file:
            file.seek(0, os.SEEK_END)
            # End an incomplete line of a process that was killed
            if file.tell():
                file.seek(-1, os.SEEK_END)
                data = data if file.read(1) == b"\n" else b"\n" + data
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Write `results.db` in sorted order, and remove `running.db`.

        If the process is killed at any moment, one of the two files is complete.
        """
        if not self._open:
            return
        running = self.folder / RUNNING
        _write_canonical(self.contents, self.folder / RESULTS)
        # The checkpoint fails while another process reads the file
        with suppress(sqlite3.OperationalError):
            self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._file.close()
        self._open = False
        # Logs are removed first: SQLite would apply a remaining log to the next file of that name
        for left in (*_logs(running), running):
            left.unlink(missing_ok=True)
        flush_folder(self.folder)


def exists(folder: Path) -> bool:
    """Test whether a folder has the database of a study, finished or not."""
    return any((folder / name).exists() for name in (RESULTS, RUNNING))


def read(path: Path) -> Contents:
    """Read the database of a study. Nothing is written.

    `path` is the database or its folder.

    Raises StoreError for a path that is not a valid store.
    """
    folder = path if path.is_dir() else path.parent
    if path.is_dir():
        running = path / RUNNING
        path = running if running.exists() else path / RESULTS
    # SQLite writes logs next to a file in WAL mode, even for reading
    if path.name == RUNNING:
        safe_files.check_files(path, *_logs(path))
    if not path.is_file():
        raise StoreError(
            f"the store must be the folder of a study or its results.db, got {path}, which does not"
            " exist."
        )
    # results.db has no writer, so reading it needs neither a lock nor write access to its folder
    how = "mode=ro" if path.name == RUNNING else "mode=ro&immutable=1"
    with (
        _explained(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as file,
    ):
        file.execute("PRAGMA trusted_schema = OFF")
        # One transaction gives a consistent view of a running study
        file.execute("BEGIN")
        _check(file, path)
        return _contents(file, path, _seconds(folder))


def times(folder: Path) -> list[dict[str, Any]]:
    """Read the times of runs from times.jsonl; invalid lines and values are left out."""
    entries = []
    with (
        suppress(OSError, safe_files.NotRegular),
        open(folder / TIMES, "rb", opener=safe_files.opener) as file,
    ):
        for line in file.read(MOST_TIMES).splitlines():
            with suppress(ValueError, RecursionError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    entries.append({name: x for name, x in entry.items() if _is_time(name, x)})
    return entries


def _is_time(name: str, value: Any) -> bool:
    """Test whether a value in times.jsonl has the type of its key: seconds, or text."""
    if name not in ("step", "wall"):
        return isinstance(value, str)
    return isinstance(value, int | float) and 0 <= value < 1e9


def _seconds(folder: Path) -> dict[str, float]:
    """Return the median step time of each run, in seconds, from times.jsonl.

    If a run has several entries, the last one counts.
    """
    return {
        line["cell"]: float(line["step"])
        for line in times(folder)
        if "cell" in line and "step" in line
    }


def _contents(
    file: sqlite3.Connection, path: Path, seconds: Mapping[str, float] | None = None
) -> Contents:
    seconds = seconds or {}
    outcomes: dict[str, dict[tuple[str, int], Outcome]] = {}
    sizes = {BITS: lambda prompts: -(-prompts // 8), NUMBERS: lambda prompts: 4 * prompts}
    rows = _read_rows(file, path, "outcomes", "* FROM outcomes ORDER BY digest, protocol, length")
    for digest, protocol, length, kind, prompts, data in rows:
        fits = kind in sizes and prompts > 0 and len(data) == sizes[kind](prompts)
        if not fits or not 0 <= length <= LONGEST:
            raise StoreError(
                f"{path} is damaged: the outcomes of training run {digest} at length {length} have"
                f" a wrong size. {RESTORE}"
            )
        outcomes.setdefault(digest, {})[protocol, length] = Outcome(kind, prompts, data)
    records = {}
    rows = _read_rows(file, path, "cells", "* FROM cells ORDER BY digest")
    for digest, settings, label, parameters, losses, failure in rows:
        written = json.loads(settings)
        if (named := digest_of(written)) != digest:
            raise StoreError(
                f"{path} is damaged: training run {digest} has the settings of training run"
                f" {named}. {RESTORE}"
            )
        cell = Cell.of(written, label)
        lost, done = tuple(_numbers("d", losses)), outcomes.pop(digest, {})
        records[digest] = Record(cell, parameters, lost, failure, done, seconds.get(digest))
    if outcomes:
        raise StoreError(
            f"{path} is damaged: it has outcomes of training run {min(outcomes)}, but not the run"
            f" itself. {RESTORE}"
        )
    contents = Contents(*_registered(file, path), records, path, _format(file) > 1)
    if contents.checked:
        _compare(contents.checksums, file, path)
    return contents


def _registered(
    file: sqlite3.Connection, path: Path
) -> tuple[list[tuple[str, str]], list[str], dict[str, str]]:
    """Read registered plans, deviations from them, and the environment from a study's database."""
    deviations = _read_rows(file, path, "deviations", "what FROM deviations ORDER BY number")
    return (
        [*_read_rows(file, path, "plans", "digest, text FROM plans ORDER BY number")],
        [what for (what,) in deviations],
        dict(_read_rows(file, path, "sources", "name, digest FROM sources ORDER BY name")),
    )


def _read_rows(file: sqlite3.Connection, path: Path, table: str, query: str) -> Iterator[Any]:
    """Yield the rows of an SQL query. Raises StoreError for a value of a wrong type."""
    types = TYPES[table]
    for row in file.execute(f"SELECT {query}"):
        if not all(map(isinstance, row, types)):
            raise StoreError(
                f"{path} is damaged: a row of its table {table!r} has values of wrong types."
                f" {RESTORE}"
            )
        yield row


def _compare(checksums: Mapping[str, str], file: sqlite3.Connection, path: Path) -> None:
    """Compare checksums with those in the database. Raises StoreError if any differ."""
    written = dict(_read_rows(file, path, "checksums", "part, sha256 FROM checksums"))
    for part in sorted({*checksums, *written}):
        if written.get(part) != checksums.get(part):
            named = "registered plans and sources" if part == REGISTERED else f"training run {part}"
            raise StoreError(f"{path} is damaged: the checksum of {named} is wrong. {RESTORE}")


def _check(file: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError if a database is not a study's store, or has a newer format."""
    (mark,) = file.execute("PRAGMA application_id").fetchone()
    tables = dict(
        file.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
    )
    if mark != MARK or "about" not in tables:
        raise StoreError(
            f"{path} must be the results.db of a study, got another database. Name another file."
        )
    version = _format(file)
    if version not in STATEMENTS:
        raise StoreError(
            f"{path} must have format 1 to {FORMAT}, got {brief(version)}. Install a later version"
            " of posenc."
        )
    if tables != STATEMENTS[version]:
        raise StoreError(
            f"{path} must be the results.db of a study, got a database with other tables. Name"
            " another file."
        )


def _format(file: sqlite3.Connection) -> Any:
    versions = file.execute("SELECT format FROM about").fetchall()
    return versions[0][0] if len(versions) == 1 else None


def _renew(running: Path) -> None:
    """Rewrite the file of an unfinished study in the current format, if its format is older."""
    with _explained(running), closing(sqlite3.connect(running)) as file:
        _check(file, running)
        if _format(file) == FORMAT:
            return
        # SQLite would apply a remaining log to the new file
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _write_canonical(read(running), running)
    for left in _logs(running):
        left.unlink(missing_ok=True)


def _write_canonical(contents: Contents, path: Path) -> None:
    """Write a study's database to `path`, and replace an existing file.

    The bytes of the file depend on `contents` alone.
    """
    with (
        written_beside(path, replace=True) as new,
        _explained(path),
        closing(sqlite3.connect(new, isolation_level=None)) as file,
    ):
        file.execute("PRAGMA page_size = 4096")
        file.execute(f"PRAGMA application_id = {MARK}")
        file.execute("PRAGMA synchronous = FULL")
        with _transaction(file):
            for statement in STATEMENTS[FORMAT].values():
                file.execute(statement)
            file.execute("INSERT INTO about VALUES (?)", (FORMAT,))
            _fill(file, "plans (digest, text)", contents.plans)
            _fill(file, "deviations (what)", [(what,) for what in contents.deviations])
            _fill(file, "sources", sorted(contents.sources.items()))
            whole = replace(contents, records={})
            _fill(file, "checksums", whole.checksums.items())
            for _, record in sorted(contents.records.items()):
                _insert(file, record)


def _insert(file: sqlite3.Connection, record: Record) -> None:
    cell, digest = record.cell, record.cell.digest
    settings = json.dumps(cell.settings, sort_keys=True)
    losses = _little_endian(array("d", record.losses))
    row = (digest, settings, cell.label, record.parameters, losses, record.failure)
    _fill(file, "cells", [row])
    _fill(file, "checksums", [(digest, sha256(_bytes_of(digest, record)).hexdigest())])
    rows = [
        (digest, protocol, length, *outcome)
        for (protocol, length), outcome in sorted(record.outcomes.items())
    ]
    _fill(file, "outcomes", rows)


def _fill(file: sqlite3.Connection, table: str, rows: Iterable[Sequence[Any]]) -> None:
    rows = list(rows)
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        file.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


@contextmanager
def _transaction(file: sqlite3.Connection) -> Iterator[None]:
    file.execute("BEGIN IMMEDIATE")
    try:
        yield
        file.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            file.execute("ROLLBACK")
        raise


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Convert SQLite errors in a `with` block to a StoreError of one sentence."""
    try:
        yield
    except sqlite3.OperationalError as error:
        # Errors raised by Python itself have no SQLite error code
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise OSError(None, str(error), str(path)) from None
        raise StoreError(f"{path} cannot be read: {_line(error)}.") from None
    except sqlite3.IntegrityError:
        # The caller passed wrong values; the file is undamaged
        raise
    except sqlite3.DatabaseError as error:
        raise StoreError(
            f"{path} must be the store of a study and undamaged, got the error: {_line(error)}."
        ) from None
    except StoreError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} is damaged: {_line(error)}") from None


def _line(error: Exception) -> str:
    """Return an error message as one printable line.

    The message may quote the contents of a file.
    """
    return printable(" ".join(str(error).split()), 200)


def _logs(path: Path) -> list[Path]:
    """Return the paths of SQLite's log files for a database."""
    return [path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal")]


def _little_endian(numbers: array) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _numbers(code: str, data: bytes) -> array:
    """Read an array of numbers from little-endian bytes."""
    numbers = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
