"""The store of a study: what each cell came to, prompt by prompt, in SQLite.

    results.db     all outcomes, in one order and without times: two runs of a plan end byte-equal
    running.db     the same while a study runs, in SQLite's write-ahead log; it has one writer
    times.jsonl    when, where and how fast each cell ran: a line each

Bits are packed eight to a byte, the first prompt in the highest bit; other outcomes are float32 in
little-endian order, and losses float64. Anybody's SQLite can read it. `checksums` holds a SHA-256
of each cell with its outcomes, and of what is registered, so that a flipped bit is no other result;
stores of format 1 have none.
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

from posenc.lab.study import regular
from posenc.lab.study.cell import LONGEST, Cell, Result, digest_of
from posenc.support.arguments import brief
from posenc.support.text import printable
from posenc.support.writing import flush_folder, written_beside

FORMAT = 2  # format of the tables
MARK = 0x706F7365  # "pose": SQLite's own place for whose file it is
RESULTS, RUNNING, TIMES = "results.db", "running.db", "times.jsonl"
MOST_TIMES = 2**26  # bytes of the times that are read
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
# By format, the statements that make its tables
STATEMENTS = {
    number: {name: f"CREATE TABLE {name} ({columns})" for name, columns in tables.items()}
    for number, tables in ((1, TABLES), (FORMAT, TABLES | CHECKSUMS))
}
# The types of columns, which SQLite itself does not enforce
TYPES: dict[str, Sequence[Any]] = {
    "plans": (str, str),
    "deviations": (str,),
    "sources": (str, str),
    "cells": (str, str, str, int | None, bytes, str | None),
    "outcomes": (str, str, int, str, int, bytes),
    "checksums": (str, str),
}
REGISTERED = "registered"  # the part of the checksums that is no cell
BITS, NUMBERS = "bits", "float32"
PILOT = "pilot"  # the source that marks a store as no evidence


class StoreError(ValueError):
    """A file that is no store, or a damaged or later one; the message says which."""


class Outcome(NamedTuple):
    """Outcomes of the prompts of one length: right or wrong, or bits per character."""

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
            return cls(NUMBERS, len(listed), _little(array("f", listed)))
        written = "".join("1" if right else "0" for right in listed)
        size = -(-len(listed) // 8)
        return cls(BITS, len(listed), int(f"0{written:0<{8 * size}}", 2).to_bytes(size, "big"))

    @property
    def values(self) -> Tensor:
        """A vector over prompts, bool or float32."""
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
    """A cell that is done: its outcomes, or why it has none."""

    cell: Cell
    parameters: int | None
    losses: tuple[float, ...]
    failure: str | None  # None: it did not fail
    outcomes: Mapping[tuple[str, int], Outcome]
    seconds: float | None = None  # the median of a step

    @classmethod
    def of(cls, cell: Cell, result: Result) -> "Record":
        """Make the record of a result; one whose loss is no number any more has failed."""
        outcomes = {place: Outcome.of(values) for place, values in result.outcomes.items()}
        losses = tuple(result.losses)
        lost = next((n for n, loss in enumerate(losses, 1) if not isfinite(loss)), None)
        failure = (
            None if lost is None else f"mean loss {lost} of {len(losses)} is {losses[lost - 1]}"
        )
        return cls(cell, result.parameters, losses, failure, outcomes, result.seconds)


@dataclass(frozen=True)
class Contents:
    """The contents of a store."""

    plans: Sequence[
        tuple[str, str]
    ]  # digests and texts, in the order in which they were registered
    deviations: Sequence[str]
    sources: Mapping[str, str]  # digests of files of the user's own code and texts
    records: Mapping[str, Record]  # records by the digest of their cell
    path: Path = field(default=Path(), compare=False)
    checked: bool = field(default=True, compare=False)  # False: format 1, which has no checksums

    @property
    def pilot(self) -> bool:
        """True if its plan was run as a pilot, which is no evidence."""
        return PILOT in self.sources

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the contents without times, commits and processors: the same for everybody
        who repeats them, whatever version of SQLite wrote them."""
        sources = {
            name: x for name, x in self.sources.items() if name not in ("commit", "processor")
        }
        content = sha256(replace(self, sources=sources, records={}).registered)
        for name, record in sorted(self.records.items()):
            content.update(_bytes_of(name, record))
        return content.hexdigest()

    @property
    def registered(self) -> bytes:
        """Plans, deviations and sources, as they are summed."""
        parts = [*self.plans, *self.deviations, *sorted(self.sources.items())]
        return "".join(map(repr, parts)).encode()

    @property
    def checksums(self) -> dict[str, str]:
        """The SHA-256 of each record by its cell, and of what is registered."""
        parts = {name: _bytes_of(name, record) for name, record in self.records.items()}
        return {n: sha256(x).hexdigest() for n, x in {REGISTERED: self.registered, **parts}.items()}


def _bytes_of(name: str, record: Record) -> bytes:
    """All of a record but its times, as it is summed."""
    losses = _little(array("d", record.losses)).hex()
    identity = (name, record.cell.label, record.parameters, losses, record.failure)
    return repr((identity, sorted(record.outcomes.items()))).encode()


class Store:
    """The only writer of the store in a folder. What a method writes is on disk as it returns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        running, results = folder / RUNNING, folder / RESULTS
        regular.check_files(folder / TIMES, results, running, *_logs(running))
        if not running.exists():
            for left in _logs(running):
                left.unlink(missing_ok=True)
            earlier = read(results) if results.exists() else Contents((), (), {}, {})
            _write_canonical(earlier, running)
        _renew(running)
        self._open = True
        with _explained(running):
            self._file = sqlite3.connect(running, isolation_level=None)
            # The check comes before WAL, which is written into the header
            _check(self._file, running)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = FULL")

    @property
    def contents(self) -> Contents:
        return _contents(self._file, self.folder / RUNNING)

    @property
    def finished(self) -> set[str]:
        """Digests of the cells that are done, failed ones included."""
        rows = self._file.execute("SELECT settings FROM cells")
        # by this version, which may know settings that an earlier one had not
        return {Cell.of(json.loads(settings)).digest for (settings,) in rows}

    def register(
        self, digest: str, text: str, sources: Mapping[str, str], deviation: str = ""
    ) -> None:
        """Write down, all at once, a plan, digests of what its cells depend on, and a deviation.

        A plan that is there stays. A deviation says how the study departs from what was registered.
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
        """Append the outcomes of a cell."""
        with _explained(self.folder / RUNNING), _transaction(self._file):
            _insert(self._file, record)

    def clock(self, **line: Any) -> None:
        """Append to times.jsonl, which two equal runs need not share."""
        data = f"{json.dumps(line)}\n".encode()
        with open(self.folder / TIMES, "ab+", opener=regular.opener) as file:
            file.seek(0, os.SEEK_END)
            # Close a line that a killed process left without its end
            if file.tell():
                file.seek(-1, os.SEEK_END)
                data = data if file.read(1) == b"\n" else b"\n" + data
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Write `results.db`, in one order whatever came first, and remove `running.db`.

        Killed at any moment, it leaves one of the two whole.
        """
        if not self._open:
            return
        running = self.folder / RUNNING
        _write_canonical(self.contents, self.folder / RESULTS)
        # If somebody reads the file, its log stays
        with suppress(sqlite3.OperationalError):
            self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._file.close()
        self._open = False
        # A log without its file would be read into the next file of that name
        for left in (
            *_logs(running),
            running,
        ):
            left.unlink(missing_ok=True)
        flush_folder(self.folder)


def read(path: Path) -> Contents:
    """Read a store, and write nothing: a folder of a study, or its file.

    Raises StoreError, in one sentence, for what is none.
    """
    folder = path if path.is_dir() else path.parent
    if path.is_dir():
        running = path / RUNNING
        path = running if running.exists() else path / RESULTS
    # SQLite writes beside a file in WAL mode even where it only reads
    if path.name == RUNNING:
        regular.check_files(path, *_logs(path))
    if not path.is_file():
        raise StoreError(f"{path} does not exist: name the folder of a study, or its results.db.")
    # a file that nobody writes needs no lock, and so no right to write beside it
    how = "mode=ro" if path.name == RUNNING else "mode=ro&immutable=1"
    with (
        _explained(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as file,
    ):
        file.execute("PRAGMA trusted_schema = OFF")
        # One transaction reads a running study at one moment
        file.execute("BEGIN")
        _check(file, path)
        return _contents(file, path, _seconds(folder))


def times(folder: Path) -> list[dict[str, Any]]:
    """Read the lines of the times, texts and seconds; what is neither is left out, and a line that
    was not written to its end."""
    entries = []
    with (
        suppress(OSError, regular.NotRegular),
        open(folder / TIMES, "rb", opener=regular.opener) as file,
    ):
        for line in file.read(MOST_TIMES).splitlines():
            with suppress(ValueError, RecursionError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    entries.append({name: x for name, x in entry.items() if _told(name, x)})
    return entries


def _told(name: str, value: Any) -> bool:
    if name not in ("step", "wall"):
        return isinstance(value, str)
    return isinstance(value, int | float) and 0 <= value < 1e9


def _seconds(folder: Path) -> dict[str, float]:
    """The last median of a step of each cell."""
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
            raise StoreError(f"{path} is damaged: cell {digest}, length {length}.")
        outcomes.setdefault(digest, {})[protocol, length] = Outcome(kind, prompts, data)
    records = {}
    rows = _read_rows(file, path, "cells", "* FROM cells ORDER BY digest")
    for digest, settings, label, parameters, losses, failure in rows:
        written = json.loads(settings)
        if (named := digest_of(written)) != digest:
            raise StoreError(f"{path} is damaged: cell {digest} has settings of {named}.")
        cell = Cell.of(written, label)
        lost, done = tuple(_numbers("d", losses)), outcomes.pop(digest, {})
        records[digest] = Record(cell, parameters, lost, failure, done, seconds.get(digest))
    if outcomes:
        raise StoreError(f"{path} is damaged: it has outcomes, and no cell {next(iter(outcomes))}.")
    contents = Contents(*_registered(file, path), records, path, _format(file) > 1)
    if contents.checked:
        _compare(contents.checksums, file, path)
    return contents


def _registered(
    file: sqlite3.Connection, path: Path
) -> tuple[list[tuple[str, str]], list[str], dict[str, str]]:
    """Plans, deviations and sources."""
    deviations = _read_rows(file, path, "deviations", "what FROM deviations ORDER BY number")
    return (
        [*_read_rows(file, path, "plans", "digest, text FROM plans ORDER BY number")],
        [what for (what,) in deviations],
        dict(_read_rows(file, path, "sources", "name, digest FROM sources ORDER BY name")),
    )


def _read_rows(file: sqlite3.Connection, path: Path, table: str, asked: str) -> Iterator[Any]:
    """Yield rows of a table. Raises StoreError for one with a value of another type."""
    types = TYPES[table]
    for row in file.execute(f"SELECT {asked}"):
        if not all(map(isinstance, row, types)):
            raise StoreError(f"{path} is damaged: a row of {table} has values of other types.")
        yield row


def _compare(checksums: Mapping[str, str], file: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError, with the part that differs, where a store is not what was written."""
    written = dict(_read_rows(file, path, "checksums", "part, sha256 FROM checksums"))
    for part in sorted({*checksums, *written}):
        if written.get(part) != checksums.get(part):
            what = "what is registered" if part == REGISTERED else f"cell {part}"
            raise StoreError(f"{path} is damaged: {what} is not as it was written.")


def _check(file: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError for a database of anything else, or of a later version."""
    (mark,) = file.execute("PRAGMA application_id").fetchone()
    tables = dict(
        file.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
    )
    if mark != MARK or "about" not in tables:
        raise StoreError(f"{path} is a database, but no store of a study.")
    version = _format(file)
    if version not in STATEMENTS:
        raise StoreError(
            f"{path} has format {brief(version)}, and this posenc reads format 1 to {FORMAT}:"
            " install a later one."
        )
    if tables != STATEMENTS[version]:
        raise StoreError(f"{path} has other tables than the store of a study.")


def _format(file: sqlite3.Connection) -> Any:
    versions = file.execute("SELECT format FROM about").fetchall()
    return versions[0][0] if len(versions) == 1 else None


def _renew(running: Path) -> None:
    """Write a running store of format 1 anew, in the format of today."""
    with _explained(running), closing(sqlite3.connect(running)) as file:
        _check(file, running)
        if _format(file) == FORMAT:
            return
        # A log that is left would be read into the new file
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _write_canonical(read(running), running)
    for left in _logs(running):
        left.unlink(missing_ok=True)


def _write_canonical(contents: Contents, path: Path) -> None:
    """Write a database whose bytes depend on its contents alone, in the place of `path`."""
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
    losses = _little(array("d", record.losses))
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
    """Say in one sentence what is wrong with a file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        # Python raises some errors itself, without SQLite's code
        code = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise OSError(None, str(error), str(path)) from None
        raise StoreError(f"{path} cannot be read: {_line(error)}.") from None
    except sqlite3.IntegrityError:
        # The values are wrong, not the file
        raise
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} is no store of a study, or damaged: {_line(error)}.") from None
    except StoreError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} is damaged: {_line(error)}") from None


def _line(error: Exception) -> str:
    """The message of an error in one line: SQLite and Python quote what they have read."""
    return printable(" ".join(str(error).split()), 200)


def _logs(path: Path) -> list[Path]:
    """Files that SQLite keeps beside a database."""
    return [path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal")]


def _little(numbers: array) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _numbers(code: str, data: bytes) -> array:
    """Read numbers from their bytes in little-endian order."""
    numbers = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
