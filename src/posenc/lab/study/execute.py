"""Execution of a plan's training runs by worker processes of one thread each.

The main process stores the results. Finished work is never lost. A worker that is killed is
replaced, and its training run resumes from its checkpoint. If the main process is killed, the
workers write checkpoints and end, and the same command resumes the study.
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
from typing import Any, NamedTuple

import torch

from posenc.attention.layer import SelfAttention
from posenc.compat.wait_policy import wait_passively
from posenc.lab.study import (
    analysis,
    environment,
    safe_files,
    store,
    tasks,
    train,
    user_code_gate,
)
from posenc.lab.study.build import encoding_of
from posenc.lab.study.cell import Cell, Result, check_setting
from posenc.lab.study.checkpoints import Refused
from posenc.lab.study.context_extension import check_encoding, longer_texts
from posenc.lab.study.controls import draw_positions
from posenc.lab.study.evaluate import is_resized
from posenc.lab.study.lock import locked
from posenc.lab.study.plan import MOST_SEEDS, Plan, PlanError
from posenc.lab.study.store import Contents, Record, Store
from posenc.properties import user_code
from posenc.properties.conformance import refuse_broken
from posenc.support import provenance
from posenc.support.arguments import brief
from posenc.support.extras import how_to_install

MODELS = "models"
CELLS = "cells"  # folder of checkpoints, with one subfolder for each cell
RETRIES = 3  # number of restarts of a cell whose worker was killed
GRACE = 30.0  # seconds until a worker ends after its parent has ended
PATIENCE = 120.0  # seconds that workers have to write their checkpoints
OFTEN = 0.5  # seconds between two progress messages of a worker

Runner = Callable[..., Result]
# The properties of a cell that determine its time: sizes, task, encoding, or the first of these
Kind = tuple[Any, ...]


class Event(NamedTuple):
    """An event of a training run, such as "done" with the result, or "error" with a message.

    The other kinds are "progress", "warning", "killed" and "stopped".
    """

    kind: str
    cell: Cell
    value: Any = None


@dataclass
class Status:
    """The progress of a running study: finished runs, time left, and warnings."""

    done: int = 0
    of: int = 0
    left: float | None = None  # estimated seconds to the end; None before cells were timed
    running: dict[str, Any] = field(default_factory=dict)  # progress by the name of the cell
    notes: list[str] = field(default_factory=list)  # warnings and errors, a sentence each


@dataclass(frozen=True)
class Ended:
    """The result of running a study: the number of finished training runs, and the missing ones."""

    done: int
    of: int
    missing: Sequence[tuple[Cell, str]]  # cells and the reasons


def study(
    plan: Plan,
    folder: Path,
    workers: int = 2,
    runner: Runner = train.run,
    max_minutes: float | None = None,
    progress: Callable[[Status], None] = lambda status: None,
    keep: bool = False,
    deviate: bool = False,
    start: str = "spawn",
    allow_code: user_code_gate.Allowed = (),
    part: tuple[int, int] = (1, 1),
    device: str = "cpu",
    pilot: bool = False,
) -> Ended:
    """Run the training runs (cells) of a plan that are not done yet, and store their outcomes.

    - `plan`: the plan
    - `folder`: folder of the store, the checkpoints and the saved models
    - `workers`: number of processes
    - `runner`: importable function with the arguments of `train.run`
    - `max_minutes`: time limit; cells that would end later are not started
    - `progress`: function that receives a `Status` after each event
    - `keep`: save trained models in `folder/models`
    - `deviate`: continue although plan, versions or code have changed, and record the changes
    - `start`: start method of multiprocessing
    - `allow_code`: names of code in the plan that may be run, spelled as in the plan
    - `part`: share of the cells to run, (2, 5) for the second of five; `merge` joins their stores
    - `device`: torch device for training; other than "cpu" it is recorded with the outcomes
    - `pilot`: run a plan that cannot be evidence, and mark its store

    Raises CodeRefused for code that is not allowed, Locked if another process works in the folder,
    PlanError if the folder has another plan or the plan cannot be evidence, and KeyboardInterrupt
    once checkpoints are written.
    """
    user_code_gate.check_allowed(plan.code, allow_code, "the plan")
    # Without safetensors the first checkpoint would fail after minutes of training
    try:
        import safetensors.torch  # noqa: F401
    except ImportError:
        raise ImportError(
            f"a study needs the extra `study`, which is not installed: {how_to_install('study')}",
            name="safetensors",
        ) from None
    where = environment.device(device)
    if pilot:
        where |= {environment.PILOT: "not evidence"}
    cells = resolved(plan)[part[0] - 1 :: part[1]]
    if not (pilot or _begun(plan, folder)):
        plan.check_evidence()
    with locked(folder):
        safe_files.check_folders(folder / CELLS, folder / MODELS, *(folder / CELLS).glob("*"))
        writer = Store(folder)
        try:
            _register(writer, plan, deviate, where)
            runs = partial(runner, models=folder / MODELS) if keep else runner
            runs = runs if device == "cpu" else partial(runs, device=device)
            cells = _with_stored_lengths(plan, cells, writer.contents)
            pool = Processes(runs, folder / CELLS, workers, start)
            try:
                return _Study(plan, cells, writer, pool, max_minutes, progress).run()
            finally:
                pool.close()
        finally:
            writer.close()


def _begun(plan: Plan, folder: Path) -> bool:
    """Test whether a study with this plan has already begun in a folder."""
    return store.exists(folder) and any(
        digest == plan.digest for digest, _ in store.read(folder).plans
    )


def resolved(plan: Plan) -> list[Cell]:
    """Check a plan, and return its training runs with all settings that depend on the task.

    Raises PlanError for a text, task or encoding of the user's own that cannot be used; an encoding
    that cannot be extended or does not reach the end of the longest text; a length of which the
    task cannot write a text; a metric that is measured at none of the lengths; and a margin, rate
    or `theta` out of range.
    """
    plan.check_settings()
    by_task, made_of = _by_task(plan)
    cells = _cells(plan, by_task, made_of)
    for name, task in made_of.items():
        plan.check_margin(name, task.in_bits)
        _refuse_unmeasured(plan, name, task)
        with _as_plan_error(f"tasks: {name}"):
            most = task.most_tokens()
        for cell in cells:
            if cell.task != name or cell.seed != 1:
                continue
            task = made_of[name].at(cell.trained, cell.tested)
            longest = task.longest
            with _as_plan_error(f"encodings: {cell.name}"):
                if cell.extend or user_code.is_own(cell.encoding):
                    check_encoding(cell, longest)
                    if user_code.is_own(cell.encoding):
                        refuse_broken(encoding_of(cell, task.both_ways))
                longer = longer_texts(cell, task)
                tokens = most if longer is None else max(most, longer.longest)
                if is_resized(encoding_of(cell, task.both_ways), task):
                    tokens = longest
                _refuse_too_short(cell, tokens, task.both_ways)
    return cells


def cells_of(plan: Plan) -> list[Cell]:
    """Return the training runs of a plan, without checking or importing encodings."""
    return _cells(plan, *_by_task(plan))


def _cells(
    plan: Plan, by_task: Mapping[str, Mapping[str, Any]], made_of: Mapping[str, tasks.Task]
) -> list[Cell]:
    lengths = {row.name: row.trained for row in plan.encodings}

    def whole(cell: Cell) -> Cell:
        settings, trained = by_task[cell.task], lengths[cell.name]
        if trained is not None:
            # A row with its own trained length: its encoding receives that length
            with _as_plan_error(f"encodings: {cell.name}"):
                longest = made_of[cell.task].at(trained, settings["tested"]).longest
            told = None if settings["told"] is None else longest
            settings = {**settings, "trained": trained, "told": told}
        return replace(cell, **settings)

    trials = map(whole, plan.trials())
    return [
        *(replace(cell, tested=_within_training(cell)) for cell in trials),
        *map(whole, plan.cells()),
    ]


def _by_task(plan: Plan) -> tuple[dict[str, dict[str, Any]], dict[str, tasks.Task]]:
    """Return two dicts keyed by task name: the settings that a task determines, and the `Task`."""
    by_task, made_of = {}, {}
    for name in plan.tasks:
        source = plan.source(name)
        with _as_plan_error(f"tasks: {name}"):
            data = safe_files.digest(Path(source)) if source else ""
            task = tasks.find(name, file_of(Cell(name, "", 0, data=data, source=source)))
            check_setting("trained", task.trained if plan.trained is None else plan.trained)
            task = task.at(plan.trained, plan.tested)
            by_task[name] = {"trained": task.trained, "tested": task.lengths}
            by_task[name] |= {"data": data, "source": source}
            by_task[name] |= {"told": task.longest if plan.told else None}
            # Raises ValueError for settings that could not be read from the store
            Cell.of(replace(plan.of_seed(1)[0], **by_task[name]).settings)
        made_of[name] = task
    return by_task, made_of


def _refuse_unmeasured(plan: Plan, name: str, task: tasks.Task) -> None:
    """Raise PlanError if a text length that the metric or a contrast needs is not tested."""
    tested = ", ".join(map(str, task.lengths))
    if task.trained not in task.lengths:
        raise PlanError(
            f"`tested` must contain {task.trained}, the trained length of {name}, because the test"
            f" at this length shows which seeds have learned the task, got {tested}. Add"
            f" {task.trained}."
        )
    if not analysis.lengths_of(plan.metric, task.trained, task.lengths):
        raise PlanError(
            f"`metric` must be measured at a tested length of {name}, which is trained at"
            f" {task.trained} and tested at {tested}, got {brief(plan.metric)}. Test other lengths,"
            " or use another metric."
        )
    read = sorted({part for sides in plan.contrast for side in sides for part in side})
    for key, term in [("contrast", term) for term in read] + [
        (key, term) for key in ("positive", "negative") if (term := getattr(plan, key))
    ]:
        parsed = plan.term(term)
        if parsed.task and parsed.task != name:
            continue
        if parsed.how and task.both_ways:
            raise PlanError(
                f"`{key}` must not be {brief(term)} for {name}, because models read the texts of"
                " this task in both directions, and such texts are never cropped or windowed."
                f" Remove the word {brief(parsed.how)}, or the task."
            )
        if parsed.length is not None and parsed.length not in task.lengths:
            raise PlanError(
                f"`{key}` {brief(term)} must name a length at which {name} is tested, {tested}, got"
                f" {parsed.length}. Add {parsed.length} to `tested`, or name another length."
            )


def with_rate(cell: Cell, rates: Mapping[tuple[str, str], float]) -> Cell:
    """Set the chosen learning rate of a training run; a trial run keeps its own rate."""
    if cell.seed > MOST_SEEDS:
        return cell
    return replace(cell, profile=replace(cell.profile, rate=rates[cell.task, cell.name]))


def _refuse_too_short(cell: Cell, tokens: int, both_ways: bool) -> None:
    """Check that the positions and the encoding of a run reach the end of the longest text.

    Raises the error of positions or an encoding that do not reach that far, before training.
    """
    draw_positions(cell, (1, tokens), Random(0))
    encoding, width = encoding_of(cell, both_ways), cell.profile.width
    if encoding.axes == 1:
        ends = torch.tensor([0, (cell.drawn_below or tokens) - 1])
        SelfAttention(width, cell.profile.heads, encoding)(torch.zeros(1, 2, width), ends)


def _within_training(cell: Cell) -> tuple[int, ...]:
    """Return the lengths at which trial runs are compared: those up to the trained length."""
    assert cell.trained is not None
    return tuple(n for n in cell.tested if n <= cell.trained) or (cell.trained,)


def _with_stored_lengths(plan: Plan, cells: list[Cell], contents: Contents) -> list[Cell]:
    """Keep the test lengths of the first run, even if the task's defaults have changed.

    Trial cells, which choose rates, are tested up to the trained length only, so their lengths are
    looked up separately.
    """
    if plan.tested:
        return cells

    def kind(cell: Cell) -> tuple[str, int | None, bool]:
        return cell.task, cell.trained, cell.seed > MOST_SEEDS

    begun = [record.cell for record in contents.records.values()]
    tested = {kind(cell): cell.tested for cell in begun}
    return [replace(cell, tested=tested.get(kind(cell), cell.tested)) for cell in cells]


@contextmanager
def _as_plan_error(what: str) -> Iterator[None]:
    """Convert any error in a `with` block to a PlanError of one sentence."""
    try:
        yield
    except OSError as error:
        raise PlanError(f"{what}: {error.filename} cannot be read: {error.strerror}.") from None
    except Exception as error:
        # The user's code may raise anything
        raise PlanError(f"{what}: {' '.join(str(error).split())}") from error


def file_of(cell: Cell) -> Path | None:
    """Return the task's data file or None; raise ValueError if it changed since the study began."""
    if not cell.source:
        return None
    path = Path(cell.source)
    if safe_files.digest(path) != cell.data:
        raise ValueError(
            f"{cell.source} has changed since the study began. Restore the version of the file"
            " with which the study began."
        )
    return path


def run_cell(
    cell: Cell,
    runner: Runner,
    cells: Path,
    stop: Callable[[], bool],
    progress: Callable[[Any], None],
) -> Event:
    """Execute a training run in this process, and return its result or its error as an event."""
    stopping = False

    def stop_requested() -> bool:
        nonlocal stopping
        stopping = stopping or stop()
        return stopping

    begun = time.monotonic()
    place = cells / cell.digest
    resumed = place.is_dir()
    try:
        task = tasks.find(cell.task, file_of(cell))
        result = runner(cell, task, place, stop_requested, progress)
        record = Record.of(cell, result)
    except ArithmeticError as error:
        # The loss is not finite, which is the outcome of this cell
        record = Record(cell, None, (), str(error), {})
    except train.Stopped:
        # The parent process has requested this
        return Event("stopped", cell)
    except Exception as error:
        if stopping:
            return Event("stopped", cell)
        message = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        return Event("error", cell, " ".join(message.split()))
    spent = None if resumed else time.monotonic() - begun
    return Event("done", cell, (record, spent))


class Processes:
    """Local processes that execute training runs, each with one thread."""

    def __init__(self, runner: Runner, cells: Path, workers: int, start: str) -> None:
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
            # The worker was killed while it was idle; `wait` returns a "killed" event for the cell
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
        """Stop all worker processes, and kill those that are still training."""
        self.stop()
        for connection, (process, cell) in self._workers.items():
            if cell is None:
                process.join(GRACE)
            process.kill()
            process.join()
            connection.close()
        self._workers.clear()


def _work(connection: Connection, runner: Runner, cells: Path, parent: int) -> None:
    """Execute training runs one by one, until the worker is stopped or its parent has ended."""
    torch.set_num_threads(1)
    # A terminal sends these signals to all processes, but only the parent stops workers
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
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
                # Any message of the parent during a cell means stop, and so does a closed pipe
                stop = lambda: ended.is_set() or alone() or connection.poll()  # noqa: E731
                connection.send(run_cell(cell, runner, cells, stop, progress))
        except (EOFError, OSError):
            # The parent has ended
            return


def _exit_with_parent(parent: int) -> None:
    """Wait until the parent process has ended, then exit after `GRACE` more seconds."""
    if os.name == "nt":
        return
    while os.getppid() == parent:
        time.sleep(0.5)
    time.sleep(GRACE)
    os._exit(1)


class _Study:
    """A study in progress: starts training runs and stores their results."""

    def __init__(
        self,
        plan: Plan,
        cells: list[Cell],
        writer: Store,
        pool: Processes,
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
        self.kinds: Counter[Kind] = Counter()  # kinds of the waiting cells
        self.status = Status()
        self._count()

    def _count(self) -> None:
        """Assign a display name to each training run, and count the finished ones."""
        self.names = {
            cell.digest: f"{cell.task} {cell.name} {cell.seed}"
            + f" at {cell.profile.rate:g}" * (cell.seed > MOST_SEEDS)
            for cell in self.cells
        }
        self.done = {*self.store.finished} & self.names.keys()
        self.status.done, self.status.of = len(self.done), len(self.names)

    def run(self) -> Ended:
        # Remove checkpoints of stored cells, left by a process that was killed
        for digest in self.done:
            shutil.rmtree(self.store.folder / CELLS / digest, ignore_errors=True)
        try:
            self._all()
        except KeyboardInterrupt:
            self._finish_up()
            raise
        if not self.missing:
            shutil.rmtree(self.store.folder / CELLS, ignore_errors=True)
        return Ended(len(self.done), self.status.of, [*self.missing.values()])

    def _all(self) -> None:
        """Run the trials of learning rates, if the plan has any, and then all other runs."""
        if self.plan.rates:
            self._stage([cell for cell in self.cells if cell.seed > MOST_SEEDS])
            if self.missing:
                return
            self._set_rates(analysis.chosen_rates(self.plan, self.store.contents))
        self._stage(self.cells)

    def _set_rates(self, rates: Mapping[tuple[str, str], float]) -> None:
        """Set each training run's chosen learning rate, and remove the runs without one."""
        for cell in self.cells:
            if cell.seed <= MOST_SEEDS and (cell.task, cell.name) not in rates:
                why = "left out: its rate is chosen when the trials of all parts are merged"
                self.missing[cell.digest] = cell, why
        self.cells = [cell for cell in self.cells if cell.digest not in self.missing]
        self.cells = [with_rate(cell, rates) for cell in self.cells]
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
            self._handle_events(waiting)
        for cell in waiting:
            self.missing[cell.digest] = cell, "left out: there is no time for it"

    def _next(self, waiting: list[Cell]) -> Cell | None:
        """Remove and return the next waiting training run that can end before the deadline.

        Only runs with the seed of the first waiting run are considered.
        """
        for place, cell in enumerate(waiting):
            if cell.seed != waiting[0].seed:
                break
            expected = self.pace.of(kind_of(cell))
            if self.deadline is None or time.monotonic() + (expected or 0) <= self.deadline:
                self.kinds[kind_of(cell)] -= 1
                return waiting.pop(place)
        return None

    def _handle_events(self, waiting: list[Cell]) -> None:
        """Wait for events; store the results of finished runs, and queue killed runs again."""
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
        self.status.left = self._left()
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
        """Stop all workers, and wait until they have written their checkpoints or results."""
        self.pool.stop()
        until = time.monotonic() + PATIENCE
        while self.pool.busy and time.monotonic() < until:
            self._handle_events([])

    def _left(self) -> float | None:
        """Estimate the seconds until all runs are done; each running one counts as half done."""
        seconds = self.pace.of_all(self.kinds)
        if seconds is None:
            return None
        cores = max(1, self.pool.busy + self.pool.free)
        return (seconds + self.pool.busy * self.pace.mean / 2) / cores


class _Pace:
    """Mean wall times of finished training runs, to estimate the times of similar runs.

    Times are kept as cumulative sums, because an estimate is made at each event and a study may
    have ten thousand cells.
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
        """Estimate the time of a training run from similar ones that were timed, or return None."""
        for some in (kind, kind[:2], kind[:1]):
            if some in self._sums:
                count, total = self._sums[some]
                return total / count
        return None

    def of_all(self, kinds: Counter[Kind]) -> float | None:
        """Return the expected total time of training runs, or None if it cannot be estimated.

        - `kinds`: number of cells of each kind
        """
        each = [(self.of(kind), count) for kind, count in kinds.items() if count]
        if () not in self._sums or any(seconds is None for seconds, _ in each):
            return None
        return sum(count * seconds for seconds, count in each if seconds is not None)


def kind_of(cell: Cell) -> Kind:
    """Return the settings on which the duration of a training run depends."""
    return replace(cell.profile, rate=1.0), cell.task, cell.encoding


def _register(writer: Store, plan: Plan, deviate: bool, also: Mapping[str, str]) -> None:
    """Store a plan in a study's database before its training runs begin.

    Raises PlanError if the store has another plan, or was made in another environment, unless
    `deviate` is set.
    """
    held = writer.contents
    made_by = environment.describe(plan, also)
    if environment.PILOT in also and held.plans and not held.pilot:
        raise PlanError(
            f"{writer.folder} must contain a pilot or be empty for --pilot, got a registered"
            " study. Name another folder with --out, or leave out --pilot."
        )
    changed = environment.changes(held.sources, made_by)
    if held.plans and held.plans[-1][0] != plan.digest:
        earlier = Plan.stored(held.plans[-1][1])
        changed = ", ".join(part for part in (plan.differences(earlier), changed) if part)
    if changed and not deviate:
        raise PlanError(
            f"{writer.folder} contains a study registered with other settings: {changed}. Name"
            " another folder with --out, or continue with --deviate, which records the change in"
            " the results."
        )
    deviation = f"after {len(held.records)} cells: {changed}" if changed else ""
    writer.register(plan.digest, plan.text, environment.merged(held.sources, made_by), deviation)
    writer.clock(
        plan=plan.digest, begun=time.strftime("%Y-%m-%d %H:%M:%S%z"), host=socket.gethostname(),
        commit=provenance.commit(), command=provenance.command_line.get(),
    )  # fmt: skip


def _walls(writer: Store) -> list[tuple[Cell, float]]:
    """List the finished training runs and the wall time of each, from times.jsonl."""
    records = writer.contents.records
    walls = []
    for line in store.times(writer.folder):
        record = records.get(line.get("cell", ""))
        if record is not None and "wall" in line:
            walls.append((record.cell, float(line["wall"])))
    return walls
