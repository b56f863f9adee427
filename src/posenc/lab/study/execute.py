"""Carry out a plan: one process a core, each with one thread, and one writer of the store.

Whatever ends it, nothing that was done is lost. A worker that is killed is replaced, and its cell
goes on from its checkpoint; when the process that leads is killed, the workers write checkpoints
and end; the same command goes on where it was.
"""

import multiprocessing
import os
import shutil
import signal
import socket
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from posenc.attention.layer import SelfAttention
from posenc.compat.wait_policy import wait_passively
from posenc.lab.study import analysis, origin, own_code, regular, statistics, store, tasks, train
from posenc.lab.study.build import encoding_of
from posenc.lab.study.cell import Cell, Result, check_setting
from posenc.lab.study.checkpoints import Refused
from posenc.lab.study.controls import draw_positions
from posenc.lab.study.extended import check_encoding, longer_texts
from posenc.lab.study.lock import locked
from posenc.lab.study.plan import MOST_SEEDS, Plan, PlanError
from posenc.lab.study.store import Contents, Record, Store
from posenc.properties import user_code
from posenc.properties.conformance import refuse_broken
from posenc.support import provenance
from posenc.support.arguments import brief
from posenc.support.extras import how_to_install

MODELS = "models"
CELLS = "cells"  # the folder of checkpoints, one inside for each cell
RETRIES = 3  # times that a cell is begun again whose worker was killed
GRACE = 30.0  # seconds that a worker has after its parent has ended
PATIENCE = 120.0  # seconds in which workers write their checkpoints
OFTEN = 0.5  # seconds between two messages of a worker about its progress

Runner = Callable[..., Result]
# Cells of one kind take equally long: sizes, task, encoding, or the first of these
Kind = tuple[Any, ...]


class Event(NamedTuple):
    """News of a cell: "done" with its record, "progress", "warning", "killed", "stopped", or
    "error" with a sentence."""

    kind: str
    cell: Cell
    value: Any = None


@runtime_checkable
class Executor(Protocol):
    """Runs cells: `Processes`, or another in tests."""

    @property
    def free(self) -> int: ...
    @property
    def busy(self) -> int: ...
    def start(self, cell: Cell) -> None: ...
    def wait(self, seconds: float) -> list[Event]: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


@dataclass
class Status:
    """The progress of a study."""

    done: int = 0
    of: int = 0
    left: float | None = None  # seconds to the end, where cells like these were measured
    fit: int | None = None  # cells that will be done in time, where there is a limit
    running: dict[str, Any] = field(default_factory=dict)  # progress by the name of the cell
    notes: list[str] = field(default_factory=list)  # what went wrong, a sentence each


@dataclass(frozen=True)
class Ended:
    """The end of a study: how many cells are done, and which are not and why."""

    done: int
    of: int
    missing: Sequence[tuple[Cell, str]]
    narrow: bool | None  # whether the intervals are as narrow as the plan asks; None: it does not


def study(
    plan: Plan,
    folder: Path,
    workers: int = 2,
    runner: Runner = train.run,
    max_minutes: float | None = None,
    progress: Callable[[Status], None] = lambda status: None,
    engine: Callable[[Runner, Path], Executor] | None = None,
    keep: bool = False,
    deviate: bool = False,
    start: str = "spawn",
    allow_code: own_code.Allowed = (),
    part: tuple[int, int] = (1, 1),
    device: str = "cpu",
    pilot: bool = False,
) -> Ended:
    """Run the cells of a plan that are not done yet, and store what they come to.

    `runner` is an importable function, called as `train.run` is. `engine` makes where the cells are
    run from it and the folder of checkpoints; by default, `workers` processes, each begun by
    `start`. `keep` leaves trained models in `models`. `allow_code` are the names of code in the
    plan that may be run, each as it is spelled there. `part` is the share of the cells to be run,
    (2, 5) the second fifth; `merge` joins the stores of all. `device` is where cells are trained,
    as torch names it; another than the CPU is a source of the outcomes, by its name. `pilot` runs
    a plan that cannot be evidence, and marks its store.

    Raises CodeRefused for other code, Locked if another process works in the folder, PlanError if
    it holds another plan or the plan cannot be evidence, and KeyboardInterrupt after checkpoints.
    """
    own_code.check(plan.code, allow_code, "the plan")
    # Checkpoints need safetensors: without it all cells would be trained and lost
    try:
        import safetensors.torch  # noqa: F401
    except ImportError:
        raise ImportError(
            f"a study needs the extra `study`: {how_to_install('study')}",
            name="safetensors",
        ) from None
    where = origin.device(device)
    if pilot:
        where |= {origin.PILOT: "not evidence"}
    cells = resolved(plan)[part[0] - 1 :: part[1]]
    if not (pilot or _begun(plan, folder)):
        plan.check_evidence()
    if part[1] > 1 and plan.half_width is not None:
        raise PlanError("stop: the parts of a study do not know when all are narrow: plan `seeds`.")
    with locked(folder):
        regular.check_folders(folder / CELLS, folder / MODELS, *(folder / CELLS).glob("*"))
        writer = Store(folder)
        try:
            _register(writer, plan, deviate, where)
            runs = partial(runner, models=folder / MODELS) if keep else runner
            runs = runs if device == "cpu" else partial(runs, device=device)
            cells = _as_begun(plan, cells, writer.contents)
            begun = engine or partial(Processes, workers=workers, start=start)
            pool = begun(runs, folder / CELLS)
            try:
                return _Study(plan, cells, writer, pool, max_minutes, progress).run()
            finally:
                pool.close()
        finally:
            writer.close()


def _begun(plan: Plan, folder: Path) -> bool:
    """Test whether the store of a folder was begun with this plan."""
    if not any((folder / name).exists() for name in (store.RUNNING, store.RESULTS)):
        return False
    return any(digest == plan.digest for digest, _ in store.read(folder).plans)


def resolved(plan: Plan) -> list[Cell]:
    """The cells of a plan with what it leaves to the task: lengths, and the digest of its text.

    Raises PlanError for a text, a task or an encoding of the user's own that cannot be used, for an
    encoding that cannot be extended or ends before the longest text, for a length of which the task
    can write no text, for a metric that is measured at none of the lengths, and for a margin, a
    rate or a `theta` that cannot be meant.
    """
    plan.check_settings()
    by_task, made_of = _by_task(plan)
    cells = _cells(plan, by_task, made_of)
    for name, task in made_of.items():
        plan.check_margin(name, task.in_bits)
        _refuse_unmeasured(plan, name, task)
        with _usable(f"tasks: {name}"):
            most = task.most_tokens()
        for cell in cells:
            if cell.task != name or cell.seed != 1:
                continue
            task = made_of[name].at(cell.trained, cell.tested)
            longest = task.longest
            with _usable(f"encodings: {cell.name}"):
                if cell.extend or user_code.is_own(cell.encoding):
                    check_encoding(cell, longest)
                    if user_code.is_own(cell.encoding):
                        refuse_broken(encoding_of(cell, task.both_ways))
                longer = longer_texts(cell, task)
                tokens = most if longer is None else max(most, longer.longest)
                _refuse_too_short(cell, tokens, task.both_ways)
    return cells


def cells_of(plan: Plan) -> list[Cell]:
    """The cells of a plan as `resolved` makes them, without a look at its encodings.

    No code of an encoding is imported.
    """
    return _cells(plan, *_by_task(plan))


def _cells(
    plan: Plan, by_task: Mapping[str, Mapping[str, Any]], made_of: Mapping[str, tasks.Task]
) -> list[Cell]:
    lengths = {row.name: row.trained for row in plan.encodings}

    def whole(cell: Cell) -> Cell:
        settings, trained = by_task[cell.task], lengths[cell.name]
        if trained is not None:
            # A row that is trained on other texts is told their length
            with _usable(f"encodings: {cell.name}"):
                longest = made_of[cell.task].at(trained, settings["tested"]).longest
            told = None if settings["told"] is None else longest
            settings = {**settings, "trained": trained, "told": told}
        return replace(cell, **settings)

    trials = map(whole, plan.trials())
    return [
        *(replace(cell, tested=_within(cell)) for cell in trials),
        *map(whole, plan.cells()),
    ]


def _by_task(plan: Plan) -> tuple[dict[str, dict[str, Any]], dict[str, tasks.Task]]:
    """The settings of cells that their task decides, and the tasks, by name."""
    by_task, made_of = {}, {}
    for name in plan.tasks:
        source = plan.source(name)
        with _usable(f"tasks: {name}"):
            data = regular.digest(Path(source)) if source else ""
            task = tasks.find(name, file_of(Cell(name, "", 0, data=data, source=source)))
            check_setting("trained", task.trained if plan.trained is None else plan.trained)
            task = task.at(plan.trained, plan.tested)
            by_task[name] = {"trained": task.trained, "tested": task.lengths}
            by_task[name] |= {"data": data, "source": source}
            by_task[name] |= {"told": task.longest if plan.told else None}
            Cell.of(replace(plan.of_seed(1)[0], **by_task[name]).settings)  # as it will be read
        made_of[name] = task
    return by_task, made_of


def _refuse_unmeasured(plan: Plan, name: str, task: tasks.Task) -> None:
    """Refuse lengths, a metric or a contrast that a task does not measure."""
    if task.trained not in task.lengths:
        raise PlanError(
            f"tested: {name} is trained at {task.trained}, and tested at"
            f" {', '.join(map(str, task.lengths))}: test n = {task.trained} too, where each"
            " seed shows that it is trained."
        )
    if not analysis.lengths_of(plan.metric, task.trained, task.lengths):
        raise PlanError(
            f"metric: {brief(plan.metric)} is at none of the lengths of {name}, which is"
            f" trained at {task.trained} and tested at {', '.join(map(str, task.lengths))}:"
            " test others, or name another metric."
        )
    read = sorted({part for sides in plan.contrast for side in sides for part in side})
    for key, term in [("contrast", term) for term in read] + [
        (key, term) for key in ("positive", "negative") if (term := getattr(plan, key))
    ]:
        reading = plan.reading(term)
        if reading.task and reading.task != name:
            continue
        if reading.how and task.both_ways:
            raise PlanError(
                f"{key}: {brief(term)} is measured of a task that is read forward, which"
                f" {name} is not: leave one of them out."
            )
        if reading.length is not None and reading.length not in task.lengths:
            raise PlanError(
                f"{key}: {brief(term)} must be at a tested length of {name}, got"
                f" {reading.length}: test it, or name one of"
                f" {', '.join(map(str, task.lengths))}."
            )


def at_its_rate(cell: Cell, rates: Mapping[tuple[str, str], float]) -> Cell:
    """The cell at the rate that was chosen for its row; one that chooses rates keeps its own."""
    if cell.seed > MOST_SEEDS:
        return cell
    return replace(cell, profile=replace(cell.profile, rate=rates[cell.task, cell.name]))


def _refuse_too_short(cell: Cell, tokens: int, both_ways: bool) -> None:
    """Read the first and the last of so many tokens: positions or an encoding may end before.

    Raises what they raise there, which would else come after the training.
    """
    draw_positions(cell, (1, tokens), Random(0))
    encoding, width = encoding_of(cell, both_ways), cell.profile.width
    if encoding.axes == 1:
        ends = torch.tensor([0, (cell.drawn_below or tokens) - 1])
        SelfAttention(width, cell.profile.heads, encoding)(torch.zeros(1, 2, width), ends)


def _within(cell: Cell) -> tuple[int, ...]:
    """The lengths at which rates are chosen: nothing beyond the trained one is seen."""
    assert cell.trained is not None
    return tuple(n for n in cell.tested if n <= cell.trained) or (cell.trained,)


def _as_begun(plan: Plan, cells: list[Cell], contents: Contents) -> list[Cell]:
    """Test the lengths that a study was begun with, whatever a later version of its task tests.

    Those that choose rates are tested within the trained length alone, and say nothing of others.
    """
    if plan.tested:
        return cells

    def kind(cell: Cell) -> tuple[str, int | None, bool]:
        return cell.task, cell.trained, cell.seed > MOST_SEEDS

    begun = [record.cell for record in contents.records.values()]
    tested = {kind(cell): cell.tested for cell in begun}
    return [replace(cell, tested=tested.get(kind(cell), cell.tested)) for cell in cells]


@contextmanager
def _usable(what: str) -> Iterator[None]:
    """Say in one sentence what is wrong with a file or code that the plan names."""
    try:
        yield
    except OSError as error:
        raise PlanError(f"{what}: {error.filename} cannot be read: {error.strerror}.") from None
    except Exception as error:
        # The user's code may raise anything
        raise PlanError(f"{what}: {' '.join(str(error).split())}") from error


def file_of(cell: Cell) -> Path | None:
    """The file that a cell's task is made of; None: the packaged novel, or none."""
    if not cell.source:
        return None
    path = Path(cell.source)
    if regular.digest(path) != cell.data:
        raise ValueError(f"{cell.source} has changed since the study began.")
    return path


def run_cell(
    cell: Cell,
    runner: Runner,
    cells: Path,
    stop: Callable[[], bool],
    progress: Callable[[Any], None],
) -> Event:
    """Run a cell in this process; every outcome becomes an event."""
    asked = False

    def asked_to_stop() -> bool:
        nonlocal asked
        asked = asked or stop()
        return asked

    begun = time.monotonic()
    place = cells / cell.digest
    resumed = place.is_dir()
    try:
        task = tasks.find(cell.task, file_of(cell))
        result = runner(cell, task, place, asked_to_stop, progress)
        record = Record.of(cell, result)
    except ArithmeticError as error:
        # The loss is not finite: that is the outcome of the cell
        record = Record(cell, None, (), str(error), {})
    except train.Stopped:
        # Stopping was asked here, or of another process that shares the run
        return Event("stopped", cell)
    except Exception as error:
        if asked:
            return Event("stopped", cell)
        message = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        return Event("error", cell, " ".join(message.split()))
    spent = None if resumed else time.monotonic() - begun
    return Event("done", cell, (record, spent))


class Processes:
    """Processes of this machine, each with one thread."""

    def __init__(self, runner: Runner, cells: Path, workers: int = 2, start: str = "spawn") -> None:
        self._most, self._runner, self._cells = workers, runner, cells
        # Workers inherit the environment
        wait_passively()
        self._context: Any = multiprocessing.get_context(start)
        self._workers: dict[Connection, tuple[Any, Cell | None]] = {}

    @property
    def busy(self) -> int:
        return sum(cell is not None for _, cell in self._workers.values())

    @property
    def free(self) -> int:
        return self._most - self.busy

    def start(self, cell: Cell) -> None:
        idle = (
            (connection, process)
            for connection, (process, busy) in self._workers.items()
            if busy is None and process.is_alive()
        )
        connection, process = next(idle, None) or self._new()
        self._workers[connection] = process, cell
        try:
            connection.send(cell)
        except OSError:
            # The worker was killed while it was idle: `wait` sees that, and says so
            pass

    def _new(self) -> tuple[Connection, Any]:
        connection, worker_end = self._context.Pipe()
        words = (worker_end, self._runner, self._cells, os.getpid())
        process = self._context.Process(target=_work, args=words, daemon=True)
        process.start()
        worker_end.close()
        return connection, process

    def wait(self, seconds: float) -> list[Event]:
        events = []
        for connection in wait([*self._workers], seconds):
            assert isinstance(connection, Connection)
            process, cell = self._workers[connection]
            try:
                event = connection.recv()
            except (EOFError, OSError):
                connection.close()
                process.join()
                del self._workers[connection]
                if cell is not None:
                    events.append(Event("killed", cell, process.exitcode))
                continue
            if event.kind not in ("progress", "warning"):
                self._workers[connection] = process, None
            events.append(event)
        return events

    def stop(self) -> None:
        for connection in self._workers:
            try:
                connection.send(None)
            except OSError:
                pass

    def close(self) -> None:
        """End all processes; those that still work are killed."""
        self.stop()
        for connection, (process, cell) in self._workers.items():
            if cell is None:
                process.join(GRACE)
            process.kill()
            process.join()
            connection.close()
        self._workers.clear()


def _work(connection: Connection, runner: Runner, cells: Path, parent: int) -> None:
    """Run cells in a worker, one after the other, until it has to stop or its parent has ended."""
    torch.set_num_threads(1)
    # A terminal sends these to all processes, and the parent says when to stop
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    alone = lambda: os.getppid() != parent and os.name != "nt"  # noqa: E731
    last_sent = 0.0
    while True:
        try:
            while not connection.poll(OFTEN):
                if alone() or ended.is_set():
                    return
            cell = connection.recv()
            if cell is None:
                return

            def progress(how_far: Any, cell: Cell = cell) -> None:
                nonlocal last_sent
                if time.monotonic() - last_sent > OFTEN:
                    last_sent = time.monotonic()
                    connection.send(Event("progress", cell, how_far))

            def warn(message: Any, *_: Any, cell: Cell = cell, **__: Any) -> None:
                connection.send(Event("warning", cell, str(message)))

            with warnings.catch_warnings():
                warnings.simplefilter("always", RuntimeWarning)
                warnings.showwarning = warn
                # a message, or the end of the pipe, is the parent's way to say stop
                stop = lambda: ended.is_set() or alone() or connection.poll()  # noqa: E731
                connection.send(run_cell(cell, runner, cells, stop, progress))
        except (EOFError, OSError):
            # The parent has ended
            return


def _leave_with(parent: int) -> None:
    """End this process some time after its parent, whatever it does."""
    if os.name == "nt":
        return
    while os.getppid() == parent:
        time.sleep(0.5)
    time.sleep(GRACE)
    os._exit(1)


class _Study:
    """The order of cells, what is done with each event, and the end."""

    def __init__(
        self,
        plan: Plan,
        cells: list[Cell],
        writer: Store,
        pool: Executor,
        max_minutes: float | None,
        progress: Callable[[Status], None],
    ) -> None:
        self.plan, self.store, self.pool, self.progress = plan, writer, pool, progress
        self.deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self.cells = cells
        self.killed: dict[str, int] = {}
        self.missing: dict[str, tuple[Cell, str]] = {}
        self.pace = _Pace()
        for cell, wall in _walls(writer):
            self.pace.add(cell, wall)
        self.kinds: Counter[Kind] = Counter()  # kinds of the cells that wait
        self.status = Status()
        self._count()

    def _count(self) -> None:
        """Name the cells, and see which of them are done."""
        self.names = {
            cell.digest: f"{cell.task} {cell.name} {cell.seed}"
            + f" at {cell.profile.rate:g}" * (cell.seed > MOST_SEEDS)
            for cell in self.cells
        }
        self.done = {*self.store.finished} & self.names.keys()
        self.status.done, self.status.of = len(self.done), len(self.names)

    def run(self) -> Ended:
        # Remove checkpoints that a kill left after their cell was stored
        for digest in self.done:
            shutil.rmtree(self.store.folder / CELLS / digest, ignore_errors=True)
        try:
            narrow = self._all()
        except KeyboardInterrupt:
            self._finish_up()
            raise
        if not self.missing:
            shutil.rmtree(self.store.folder / CELLS, ignore_errors=True)
        return Ended(len(self.done), self.status.of, [*self.missing.values()], narrow)

    def _all(self) -> bool | None:
        plan = self.plan
        if plan.rates:
            self._stage([cell for cell in self.cells if cell.seed > MOST_SEEDS])
            if self.missing:
                return None if plan.half_width is None else False
            rates = analysis.chosen_rates(plan, self.store.contents)
            self._take_rates(rates)
        if plan.half_width is None:
            self._stage(self.cells)
            return None
        self._stage([cell for cell in self.cells if cell.seed <= statistics.RANKING])
        for seed in range(statistics.RANKING, plan.seeds + 1):
            # the rule is asked after each seed, when all of its cells are there and no others
            if self.missing:
                return False
            if analysis.narrow(plan, self.store.contents, seed):
                return True
            if seed < plan.seeds:
                self._stage([cell for cell in self.cells if cell.seed == seed + 1])
        return False

    def _take_rates(self, rates: Mapping[tuple[str, str], float]) -> None:
        """Train each row at the rate that was chosen for it; leave out those that have none yet."""
        for cell in self.cells:
            if cell.seed <= MOST_SEEDS and (cell.task, cell.name) not in rates:
                why = "left out: its rate is chosen when the trials of all parts are merged"
                self.missing[cell.digest] = cell, why
        self.cells = [cell for cell in self.cells if cell.digest not in self.missing]
        self.cells = [at_its_rate(cell, rates) for cell in self.cells]
        self._count()

    def _stage(self, cells: Sequence[Cell]) -> None:
        waiting = [cell for cell in cells if cell.digest not in self.done]
        self.kinds = Counter(map(kind_of, waiting))
        while waiting or self.pool.busy:
            while self.pool.free > 0 and (cell := self._next(waiting)) is not None:
                self.pool.start(cell)
                self.status.running[self.names[cell.digest]] = None
            if not self.pool.busy:
                break
            if self.deadline is not None and time.monotonic() > self.deadline:
                self._finish_up()
                break
            self._take(waiting)
        for cell in waiting:
            self.missing[cell.digest] = cell, "left out: there is no time for it"

    def _next(self, waiting: list[Cell]) -> Cell | None:
        """Take the next cell that ends in time, of the first seed that is not done."""
        for place, cell in enumerate(waiting):
            if cell.seed != waiting[0].seed:
                break
            expected = self.pace.of(kind_of(cell))
            if self.deadline is None or time.monotonic() + (expected or 0) <= self.deadline:
                self.kinds[kind_of(cell)] -= 1
                return waiting.pop(place)
        return None

    def _take(self, waiting: list[Cell]) -> None:
        """Wait for what comes next, and store it."""
        for event in self.pool.wait(1.0):
            cell, name = event.cell, self.names[event.cell.digest]
            if event.kind == "progress":
                self.status.running[name] = event.value
                continue
            if event.kind == "warning":
                self.status.notes.append(f"{name}: {event.value}")
                continue
            self.status.running.pop(name, None)
            if event.kind == "done":
                self._store(*event.value)
            elif event.kind == "killed":
                times = self.killed[cell.digest] = self.killed.get(cell.digest, 0) + 1
                self.status.notes.append(f"{name}: its process was killed ({event.value})")
                if times <= RETRIES:
                    waiting.insert(0, cell)
                    self.kinds[kind_of(cell)] += 1
                else:
                    self.missing[cell.digest] = cell, f"its process was killed {times} times"
            elif event.kind == "stopped":
                self.missing[cell.digest] = cell, "stopped: it goes on from its checkpoint"
            else:
                self.missing[cell.digest] = cell, event.value
                self.status.notes.append(f"{name}: {event.value}")
        self.status.left, self.status.fit = self._left(), self._fitting()
        self.progress(self.status)

    def _store(self, record: Record, wall: float | None) -> None:
        cell = record.cell
        self.store.add(record)
        self.store.clock(
            cell=cell.digest, step=record.seconds, wall=wall, host=socket.gethostname(),
            finished=time.strftime("%Y-%m-%d %H:%M:%S%z"),
        )  # fmt: skip
        self.done.add(cell.digest)
        self.missing.pop(cell.digest, None)
        self.status.done = len(self.done)
        if wall is not None:
            self.pace.add(cell, wall)
        shutil.rmtree(self.store.folder / CELLS / cell.digest, ignore_errors=True)

    def _finish_up(self) -> None:
        """Let what runs write its checkpoint, and store what is done meanwhile."""
        self.pool.stop()
        until = time.monotonic() + PATIENCE
        while self.pool.busy and time.monotonic() < until:
            self._take([])

    def _left(self) -> float | None:
        """Estimate the seconds until all is done; half of what runs counts as done."""
        seconds = self.pace.of_all(self.kinds)
        if seconds is None:
            return None
        cores = max(1, self.pool.busy + self.pool.free)
        return (seconds + self.pool.busy * self.pace.mean / 2) / cores

    def _fitting(self) -> int | None:
        """Estimate how many cells will be done in time."""
        if self.deadline is None:
            return None
        waiting, seconds = self.kinds.total(), self.pace.of_all(self.kinds)
        left = (self.deadline - time.monotonic()) * max(1, self.pool.busy + self.pool.free)
        share = min(1.0, max(0.0, left) / seconds) if seconds else 1.0
        return len(self.done) + self.pool.busy + int(share * waiting)


class _Pace:
    """Seconds that cells took, as running sums: of those of a kind, of its task, and of its sizes.

    What is asked at every event must not go through all cells: a leader has ten thousand of them.
    """

    def __init__(self) -> None:
        self._sums: dict[Kind, tuple[int, float]] = {}

    @property
    def mean(self) -> float:
        count, total = self._sums.get((), (1, 0.0))
        return total / count

    def add(self, cell: Cell, wall: float) -> None:
        kind = kind_of(cell)
        for some in (kind, kind[:2], kind[:1], ()):
            count, total = self._sums.get(some, (0, 0.0))
            self._sums[some] = count + 1, total + wall

    def of(self, kind: Kind) -> float | None:
        """Expect the mean of the cells that are most like it; None: nothing is known."""
        for some in (kind, kind[:2], kind[:1]):
            if some in self._sums:
                count, total = self._sums[some]
                return total / count
        return None

    def of_all(self, kinds: Counter[Kind]) -> float | None:
        """Expect the seconds of so many cells of each kind; None where one is not known."""
        each = [(self.of(kind), count) for kind, count in kinds.items() if count]
        if () not in self._sums or any(seconds is None for seconds, _ in each):
            return None
        return sum(count * seconds for seconds, count in each if seconds is not None)


def kind_of(cell: Cell) -> Kind:
    """What the time of a cell depends on; its learning rate is none of it."""
    return replace(cell.profile, rate=1.0), cell.task, cell.encoding


def _register(writer: Store, plan: Plan, deviate: bool, also: Mapping[str, str]) -> None:
    """Write the plan into the store; refuse another one, unless the user says so."""
    held = writer.contents
    made_by = origin.of(plan, also)
    if origin.PILOT in also and held.plans and not held.pilot:
        raise PlanError(
            f"pilot: {writer.folder} must hold a pilot or nothing, got a study that is none. Name"
            " another folder with --out, or leave out --pilot."
        )
    changed = origin.changed(held.sources, made_by)
    if held.plans and held.plans[-1][0] != plan.digest:
        earlier = Plan.stored(held.plans[-1][1])
        changed = ", ".join(part for part in (plan.differences(earlier), changed) if part)
    if changed and not deviate:
        raise PlanError(
            f"{writer.folder} holds a study that was registered otherwise: {changed}. Name another"
            " folder with --out, or go on with --deviate, and the results will say so."
        )
    departs = f"after {len(held.records)} cells: {changed}" if changed else ""
    writer.register(plan.digest, plan.text, origin.joined(held.sources, made_by), departs)
    writer.clock(
        plan=plan.digest, begun=time.strftime("%Y-%m-%d %H:%M:%S%z"), host=socket.gethostname(),
        commit=provenance.commit(), command=provenance.command_line.get(),
    )  # fmt: skip


def _walls(writer: Store) -> list[tuple[Cell, float]]:
    """List the seconds that cells took from their beginning to their end."""
    records = writer.contents.records
    walls = []
    for line in store.times(writer.folder):
        record = records.get(line.get("cell", ""))
        if record is not None and "wall" in line:
            walls.append((record.cell, float(line["wall"])))
    return walls
