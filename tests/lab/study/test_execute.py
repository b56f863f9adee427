"""Studies that are killed, stopped and disturbed against ones that are left alone."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import pytest
import study_runner
import torch
from refusals import refused
from study_runner import TINY
from thorough import some

from posenc.lab.study import environment, execute, store, tasks
from posenc.lab.study.cell import Result
from posenc.lab.study.lock import Locked, locked
from posenc.lab.study.plan import Plan, PlanError
from posenc.lab.study.store import Record, read

HANGS = 600  # seconds after which a process that should end is said to hang
FORK = get_context("fork")  # torch is imported already: a process starts at once


def plan(seeds=2, encodings=("nope", "rope"), **rest):
    content = {"tasks": ["copy"], "encodings": [*encodings], "profile": asdict(TINY)}
    content |= {"trained": 10, "tested": [5, 10, 15, 20], **rest}
    return Plan.of(content | ({"seeds": seeds} if seeds else {}))


def study(folder, planned=None, runner=study_runner.run, **rest):
    return execute.study(
        planned or plan(), folder, runner=runner, start="fork", **{"pilot": True} | rest
    )


def results(folder):
    return (folder / store.RESULTS).read_bytes()


@pytest.fixture(scope="module", autouse=True)
def imported():
    """The first step of an optimizer imports more of torch; what is forked from here has it."""
    study_runner.run(plan().cells()[0], None)


@pytest.fixture(scope="module")
def undisturbed(imported, tmp_path_factory):
    """The bytes of a study that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    ended = study(folder)
    assert (ended.done, ended.of, ended.missing) == (4, 4, [])
    return results(folder)


STEPS = 8  # of 12, after which cells are held: they have two checkpoints


@pytest.fixture
def held(monkeypatch):
    """Let cells wait after 8 steps until they are stopped; return whether both workers arrived."""
    monkeypatch.setenv("HELD", str(STEPS))
    monkeypatch.setattr(execute, "OFTEN", 0.0)

    def both(status):
        steps = [far.step for far in status.running.values() if far]
        return steps == [STEPS, STEPS]

    return both


@pytest.fixture
def stopped(held, tmp_path, monkeypatch):
    """The folder of a study that is interrupted in the middle of two cells."""
    pressed = []  # once: a second Ctrl-C does not wait for checkpoints

    def interrupt(status):
        if not pressed and held(status):
            pressed.append(True)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(tmp_path, progress=interrupt)
    monkeypatch.delenv("HELD")
    return tmp_path


def test_the_plan_is_registered_before_the_first_cell(tmp_path):
    looked = []

    def look(status):
        held = read(tmp_path)
        looked.append((len(held.records), [digest for digest, _ in held.plans]))

    study(tmp_path, progress=look)
    assert looked[0] == (0, [plan().digest])


def test_cells_come_out_as_if_run_alone_whatever_the_workers(tmp_path, undisturbed):
    study(tmp_path, workers=1)
    assert results(tmp_path) == undisturbed
    held = read(tmp_path)
    for cell in execute.resolved(plan()):
        alone = study_runner.run(cell, None)
        assert held.records[cell.digest].losses == alone.losses
        for place, values in alone.outcomes.items():
            assert held.records[cell.digest].outcomes[place].values.equal(values)


@pytest.mark.slow
def test_processes_that_start_from_nothing_come_to_the_same(tmp_path, undisturbed):
    execute.study(plan(), tmp_path, runner=study_runner.run, pilot=True)
    assert results(tmp_path) == undisturbed


def test_finished_cells_are_not_trained_again(tmp_path, monkeypatch):
    monkeypatch.setenv("COUNTED", str(tmp_path / "counted"))
    study(tmp_path / "a", plan(seeds=1), study_runner.counted)
    study(tmp_path / "a", plan(seeds=2), study_runner.counted, deviate=True)
    lines = (tmp_path / "counted").read_text().splitlines()
    assert len(lines) == len(set(lines)) == 4 * TINY.steps


def test_nothing_is_left_but_results_times_and_the_lock(tmp_path):
    study(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"results.db", "times.jsonl", "lock"}


def test_trained_models_are_kept_where_they_are_asked_for(tmp_path):
    study(tmp_path, runner=study_runner.kept, keep=True)
    models = {path.name for path in (tmp_path / "models").iterdir()}
    assert models == {cell.digest for cell in execute.resolved(plan())}
    assert not (tmp_path / "cells").exists()


def test_a_killed_worker_is_replaced_and_its_cell_goes_on(tmp_path, undisturbed, monkeypatch):
    said = []
    ended = study(tmp_path, runner=study_runner.dies_once, progress=lambda s: said.extend(s.notes))
    assert (ended.done, ended.missing) == (4, [])
    assert results(tmp_path) == undisturbed
    assert any("seed 1: its process was killed (-9)" in note or "1: its" in note for note in said)


def test_a_cell_whose_workers_always_die_is_named_and_the_rest_is_done(tmp_path):
    ended = study(tmp_path, runner=study_runner.dies_always)
    assert ended.done == 3
    ((cell, why),) = ended.missing
    assert (cell.encoding, cell.seed) == ("rope", 1)
    assert why == "its process was killed 4 times"
    assert study(tmp_path).done == 4  # and it is tried again when the study goes on


def test_a_lost_loss_is_an_outcome_and_is_not_hidden(tmp_path):
    ended = study(tmp_path, runner=study_runner.diverges)
    assert (ended.done, ended.missing) == (4, [])
    failures = [one for one in read(tmp_path).records.values() if one.failure]
    assert [(one.cell.encoding, one.cell.seed, one.failure) for one in failures] == [
        ("rope", 2, "the loss of step 5 is nan")
    ]


def test_an_error_of_the_code_is_named_and_not_stored(tmp_path):
    ended = study(tmp_path, runner=study_runner.breaks)
    assert ended.done == 3
    ((cell, why),) = ended.missing
    assert (cell.encoding, cell.seed, why) == ("rope", 1, "TypeError: a tensor was expected")
    assert len(read(tmp_path).records) == 3


def test_a_damaged_checkpoint_is_said_and_the_one_before_it_used(tmp_path, undisturbed, stopped):
    damaged = sorted((tmp_path / "cells").glob("*/step*"))[-1]
    assert len([*damaged.parent.iterdir()]) == 2
    damaged.write_bytes(damaged.read_bytes()[:-1])
    said = []
    study(tmp_path, progress=lambda status: said.extend(status.notes))
    assert any(damaged.name in note for note in said)
    assert results(tmp_path) == undisturbed


@pytest.mark.usefixtures("stopped")
def test_an_interrupted_study_has_checkpoints_and_goes_on_to_the_same_bytes(tmp_path, undisturbed):
    assert [*(tmp_path / "cells").glob("*/step-*")]
    assert (tmp_path / store.RESULTS).exists()
    study(tmp_path)
    assert results(tmp_path) == undisturbed


def in_a_process(folder, *words):
    """A study in a process of its own, which is forked from this one."""
    process = FORK.Process(target=study, args=(folder, *words))
    process.start()
    return process


def workers_of(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == pid and words[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def wait_for(pids):
    """Wait until processes have ended."""
    until = time.monotonic() + HANGS
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(alive, pids))


def until_free(folder):
    """Wait for workers that were forked from a killed study, and so hold its lock."""
    until = time.monotonic() + HANGS
    while True:
        try:
            with locked(folder):
                return
        except Locked:
            assert time.monotonic() < until
            time.sleep(0.02)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_killed_after_random_steps_twenty_times_it_ends_byte_equal(
    tmp_path, undisturbed, monkeypatch
):
    """Every second kill hits the process that leads, the others one of its workers."""
    steps = tmp_path / "steps"
    steps.touch()
    monkeypatch.setenv("COUNTED", str(steps))
    draw, kills, studies = random.Random(1), 0, 0
    while kills < 20:
        folder = tmp_path / str(studies)
        process = in_a_process(folder, plan(), study_runner.counted)
        for leads in (False, True):
            until = steps.read_text().count("\n") + draw.randrange(20)
            while process.is_alive() and steps.read_text().count("\n") < until:
                time.sleep(0.001)
            if not process.is_alive():
                break
            workers = workers_of(process.pid)
            if leads or not workers:
                process.kill()
            else:
                os.kill(draw.choice(workers), signal.SIGKILL)
            kills += 1
        process.join()
        until_free(folder)
        if (folder / store.RESULTS).exists() and not (folder / store.RUNNING).exists():
            assert results(folder) == undisturbed
            studies += 1
    study(folder)
    assert results(folder) == undisturbed


@pytest.mark.slow
@pytest.mark.usefixtures("held")
def test_killed_parents_leave_no_orphans(tmp_path):
    process = in_a_process(tmp_path)
    while len(workers := workers_of(process.pid)) < 2:
        time.sleep(0.02)
    while not [*(tmp_path / "cells").glob("*/step-*")]:  # they write checkpoints as they go
        time.sleep(0.02)
    assert process.is_alive()
    process.kill()
    process.join()
    wait_for(workers)


SAYS_MORE = """
from posenc.commands import cli
from posenc.commands import progress
every = progress.line_every
progress.line_every = lambda seconds, *said: every(0.0, *said)
cli.main()
"""


@pytest.mark.parametrize("number", some((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), 3))
@pytest.mark.slow
def test_signals_leave_checkpoints_and_the_same_command_goes_on(tmp_path, number):
    """The whole command, as a terminal or a scheduler ends it while its worker trains."""
    (tmp_path / "plan.toml").write_text(plan(profile=asdict(TINY) | {"steps": 100_000}).text)
    words = ["-c", SAYS_MORE, "study", "plan.toml", "--pilot", "--out", "out", "--workers", "1"]
    process = subprocess.Popen(
        [sys.executable, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored after `&`
    )  # fmt: skip
    for line in process.stderr:
        if "loss " in line:
            break
    process.send_signal(number)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert "to continue: posenc study --resume out" in said
    assert (tmp_path / "out/results.db").exists()
    assert [*(tmp_path / "out/cells").glob("*/step-*")]


def test_a_second_study_in_a_folder_is_refused_with_the_pid(tmp_path):
    with locked(tmp_path), refused(Locked, os.getpid()):
        study(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("held")
def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, monkeypatch, undisturbed):
    process = in_a_process(tmp_path)
    while not workers_of(process.pid):
        time.sleep(0.02)
    with refused(Locked, process.pid):
        study(tmp_path)
    process.kill()
    process.join()
    until_free(tmp_path)
    monkeypatch.delenv("HELD")
    study(tmp_path)
    assert results(tmp_path) == undisturbed


def test_a_study_goes_on_with_the_lengths_that_it_was_begun_with(tmp_path, monkeypatch):
    """A later version of a task tests others, where the plan leaves them to it."""
    unsaid = lambda seeds: replace(plan(seeds=seeds), tested=())  # noqa: E731
    with monkeypatch.context() as earlier:
        earlier.setattr(tasks.Task, "lengths", property(lambda task: task.tested or (5, 10, 15)))
        study(tmp_path, unsaid(1))
    study(tmp_path, unsaid(2), deviate=True)
    assert {record.cell.tested for record in read(tmp_path).records.values()} == {(5, 10, 15)}


def test_another_plan_in_the_folder_is_refused_and_recorded_if_it_must_be(tmp_path):
    study(tmp_path, plan(seeds=1))
    with refused(PlanError, "`seeds`", 1, 2, "--deviate"):
        study(tmp_path)
    assert read(tmp_path).deviations == []
    study(tmp_path, deviate=True)
    held = read(tmp_path)
    assert held.deviations == ["after 2 cells: `seeds` is 1 there and 2 here"]
    assert [digest for digest, _ in held.plans] == [plan(seeds=1).digest, plan().digest]


def test_other_versions_are_refused_like_another_plan(tmp_path, monkeypatch):
    study(tmp_path, plan(seeds=1))
    monkeypatch.setattr(environment, "__version__", "99")
    with refused(PlanError, "`posenc`", "'99'"):
        study(tmp_path, plan(seeds=1))


def test_changed_code_of_ones_own_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own, planned = tmp_path / "mine.py", plan(seeds=1, encodings=["mine.py:Mine"])
    own.write_text("from posenc import NoPE as Mine")
    study(tmp_path / "out", planned, allow_code="mine.py:Mine")
    own.write_text("from posenc import NoPE as Mine  # louder")
    with refused(PlanError, "`mine.py:Mine`"):
        study(tmp_path / "out", planned, allow_code="mine.py:Mine")


def test_code_of_ones_own_that_breaks_a_promise_is_refused_before_it_trains(tmp_path, monkeypatch):
    """In one sentence with its witness; nothing is in the store."""
    monkeypatch.chdir(tmp_path)
    lines = (
        "from posenc import Encoding",
        "class Mine(Encoding):",
        "    def on_values(self, v, at):",
    )
    (tmp_path / "mine.py").write_text("\n".join([*lines, "        return v + v.roll(1, -2)"]))
    with refused(PlanError, "encodings", "mine.py", "`cache`", "'auto'", 0, 1, 2):
        study(
            tmp_path / "out", plan(seeds=1, encodings=["mine.py:Mine"]), allow_code="mine.py:Mine"
        )
    assert not (tmp_path / "out").exists() or not read(tmp_path / "out").records


def test_cells_that_do_not_fit_into_the_time_are_left_out_and_named(tmp_path, monkeypatch):
    study(tmp_path, plan(seeds=1))
    times = tmp_path / store.TIMES
    lines = [json.loads(line) for line in times.read_text().splitlines()]
    for line in lines:
        line["wall"] = 3600.0 if "cell" in line else None
    times.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ended = study(tmp_path, plan(seeds=2), deviate=True, max_minutes=1)
    assert ended.done == 2
    assert [(cell.seed, why) for cell, why in ended.missing] == [
        (2, "left out: there is no time for it")
    ] * 2


def test_when_time_is_over_what_runs_is_stopped_with_a_checkpoint(tmp_path, monkeypatch, held):
    """The clock goes on by an hour when both workers are in the middle of a cell."""
    hours = [0]
    clock = SimpleNamespace(
        **vars(time) | {"monotonic": lambda: time.monotonic() + 3600 * hours[0]}
    )
    monkeypatch.setattr(execute, "time", clock)
    later = lambda status: hours.append(hours.pop() or held(status))  # noqa: E731
    ended = study(tmp_path, max_minutes=30, progress=later)
    assert ended.done == 0
    whys = [why.partition(":")[0] for _, why in ended.missing]
    assert sorted(whys) == ["left out"] * 2 + ["stopped"] * 2
    assert [*(tmp_path / "cells").glob("*/step-*")]


OWN = """
from dataclasses import replace
from posenc import NoPE as Mine
from posenc.lab.study.tasks import TASKS

long = replace(TASKS["copy"], trained=10**9)
"""
REFUSED = [
    ({"metric": "at 99"}, "`metric`", "'at 99'", "5, 10, 15, 20"),
    ({"metric": "at 0"}, "`metric`", "'at 0'", 10),
    ({"metric": "at 1.15"}, "`metric`", "'at 1.15'"),
    ({"metric": "at " + "9" * 400}, "`metric`"),
    ({"metric": "at 1.35"}, "`metric`", "'at 1.35'", "copy"),
    ({"contrast": [["nope at 11", "rope cropped"]]}, "`contrast`", "'nope at 11'", "copy", 11),
    ({"tested": [5, 10]}, "`metric`", "'area'", "copy"),
    ({"tested": [12, 16]}, "`tested`", "copy", 10, "12, 16"),
    ({"tasks": ["language"], "text": "/dev/zero"}, "/dev/zero", "regular file"),
    ({"tasks": ["language"], "text": "pipe"}, "pipe", "regular file"),
    ({"tasks": ["language"], "text": "."}, "tasks: language", "Is a directory"),
    ({"tasks": ["language"], "text": "large"}, "large", "268,435,456"),
    ({"tasks": ["images"], "images": "/dev/zero"}, "tasks: images", "/dev/zero", "regular file"),
    ({"tasks": ["copy-unique"], "tested": [10, 12, 101]}, "copy-unique", 100, 101),
    ({"tasks": ["language"], "tested": [10, 12, 99_999]}, "43,341", "99,999"),
    (
        {"tested": [10, 12, 299], "encodings": ["nope", "learned"]},
        *("encodings: learned", "`pos`", 511, "0 … 599"),
    ),
    (
        {
            "tasks": ["marks-order"],
            "trained": 8,
            "tested": [8, 12],
            "encodings": [{"name": "wide", "encoding": "learned", "length": 100}],
        },
        *("encodings: wide", "`pos`", 99, "0 … 144"),
    ),
    ({"positions": "random 30"}, "encodings: nope", "`positions`", "'random 30'", 42),
    (
        {
            "positions": "random 50",
            "encodings": [{"name": "a", "encoding": "rope", "extend": "yarn 4 after 2"}],
        },
        *("encodings: a", "`positions`", "'random 50'", 83),
    ),
    (
        {"encodings": [{"name": "a", "encoding": "rope", "extend": "pi 200000 after 2"}]},
        *("`extend`", "'pi 200000 after 2'", "2,000,000", "1,048,576"),
    ),
    ({"tasks": ["flip-flop"], "trained": 1, "tested": [1, 2]}, "flip-flop", "`n`", 2, 1),
    ({"tasks": ["mine.py:long"]}, "tasks: mine.py:long", "`trained`", 10**9),
    (
        {"encodings": [{"name": "mine.py:Mine", "extend": "pi 2"}]},
        *("encodings: mine.py:Mine", "RoPE", "NoPE"),
    ),
]


@pytest.mark.parametrize(("change", "facts"), [(change, facts) for change, *facts in REFUSED])
def test_a_plan_that_would_fail_in_training_is_rejected_before_anything_is_written(
    tmp_path, monkeypatch, change, facts
):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with open("large", "wb") as file:
        file.truncate(2**40)
    Path("mine.py").write_text(OWN)
    planned = plan(**change)
    if "mine.py:long" in planned.tasks:
        planned = replace(planned, trained=None, tested=())
    with refused(PlanError, *facts) as raised:
        study(tmp_path / "out", planned, allow_code=planned.code)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_table_that_is_resized_need_not_reach_the_end_of_larger_pictures():
    row = {"name": "table", "encoding": "learned", "length": 1 + 8 * 8}
    planned = plan(1, [row], tasks=["marks-order"], trained=8, tested=[8, 12])
    assert [cell.name for cell in execute.resolved(planned)] == ["table"]


def test_without_safetensors_no_cell_is_trained(tmp_path, monkeypatch):
    """All would be trained, and lost at their first checkpoint."""
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    monkeypatch.setattr(execute.Processes, "start", lambda *_: 1 / 0)
    with refused(ImportError, "`study`"):
        study(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rates_are_chosen_first_and_within_the_trained_length(tmp_path):
    planned = plan(seeds=1, rates=[1e-3, 2e-3, 4e-3], rate_seeds=1)
    ended = study(tmp_path, planned)
    assert (ended.done, ended.of) == (8, 8)
    records = read(tmp_path).records.values()
    trials = [record.cell for record in records if record.cell.seed > 10_000]
    assert len(trials) == 6
    assert {cell.tested for cell in trials} == {(5, 10)}
    again = study(tmp_path, planned)
    assert (again.done, len(read(tmp_path).records)) == (8, 8)


class Instant:
    """An engine whose cells are done at once, with the outcomes of a single prompt."""

    free, busy = 8, 0

    def __init__(self, *_):
        self.begun = []

    def start(self, cell):
        self.begun.append(cell)
        self.free, self.busy = self.free - 1, self.busy + 1

    def wait(self, seconds):
        cell = self.begun.pop(0)
        self.free, self.busy = self.free + 1, self.busy - 1
        right = {("generated", n): torch.tensor([True]) for n in cell.tested}
        record = Record.of(cell, Result(right, (1.0,), 1, 0.1))
        return [execute.Event("done", cell, (record, 1.0))]

    def stop(self):
        pass

    close = stop


class EndsWithTrials(Instant):
    """A machine that goes down when the rates are chosen."""

    def start(self, cell):
        if cell.seed <= 10_000:
            raise KeyboardInterrupt
        super().start(cell)


def test_after_the_trials_a_study_is_gone_on_with_at_all_lengths(tmp_path, monkeypatch):
    """Rows were tested at the lengths of the trials alone: nothing beyond L, and nothing said."""
    planned = replace(plan(seeds=2, rates=[1e-3, 2e-3, 4e-3], rate_seeds=1), tested=())
    monkeypatch.setattr(execute, "Processes", EndsWithTrials)
    with pytest.raises(KeyboardInterrupt):
        execute.study(planned, tmp_path, pilot=True)
    monkeypatch.setattr(execute, "Processes", Instant)
    assert len(read(tmp_path).records) == 6
    for _ in range(2):
        ended = execute.study(planned, tmp_path, pilot=True)
    assert (ended.done, ended.of, len(read(tmp_path).records)) == (10, 10, 10)
    longest = {
        (record.cell.seed > 10_000, max(record.cell.tested))
        for record in read(tmp_path).records.values()
    }
    task = tasks.find("copy").at(planned.trained, ())
    assert longest == {(True, task.trained), (False, max(task.lengths))}
    assert max(task.lengths) > task.trained


class Stretched(Instant):
    """Cells that are stretched after their training have no losses of their own."""

    def wait(self, seconds):
        (event,) = super().wait(seconds)
        record, spent = event.value
        return [event._replace(value=(replace(record, losses=()), spent))]


def test_the_rate_of_a_row_without_losses_is_chosen_by_its_outcomes(tmp_path, monkeypatch):
    rows = [{"name": "far", "encoding": "rope", "extend": "yarn 2"}]
    planned = plan(seeds=1, encodings=rows, rates=[1e-3, 2e-3, 4e-3], rate_seeds=1)
    monkeypatch.setattr(execute, "Processes", Stretched)
    assert execute.study(planned, tmp_path, pilot=True).done == 4


def calls_of_leader(folder, rows, left):
    """Return the number of function calls for each cell of a study with 20 seeds of these rows."""
    named = [{"name": f"r{n}", "encoding": "rope", "base": 1e4 + n} for n in range(rows)]
    planned, calls = plan(seeds=20, encodings=named), 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        ended = execute.study(
            planned,
            folder,
            pilot=True,
            progress=lambda status: left.append(status.left),
        )
    finally:
        sys.setprofile(None)
    assert ended.done == 20 * rows
    return calls / ended.done


@pytest.mark.slow
def test_a_cell_costs_its_leader_no_more_among_many(tmp_path, monkeypatch):
    """Estimates once compared all waiting cells with all times, hours for 10,000 cells."""
    monkeypatch.setattr(execute, "Processes", Instant)
    left = []
    few, many = (calls_of_leader(tmp_path / str(rows), rows, left) for rows in (10, 40))
    assert many < few
    assert left[-700] == pytest.approx(699 / 8 + 0.5, rel=0.02)


def environment_of(cell, task, directory=None, stop=None, progress=None):
    """Fail with the wait policy of the worker."""
    raise ValueError(f"policy {os.environ.get('OMP_WAIT_POLICY')}")


@pytest.mark.parametrize("set_to", [None, "active"])
def test_workers_sleep_while_they_wait_unless_the_user_has_set_a_policy(
    tmp_path, monkeypatch, set_to
):
    if set_to is None:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    else:
        monkeypatch.setenv("OMP_WAIT_POLICY", set_to)
    engine = execute.Processes(environment_of, tmp_path, 1, "fork")
    try:
        engine.start(plan().cells()[0])
        event = next(event for _ in range(HANGS) for event in engine.wait(1))
    finally:
        engine.close()
    assert (event.kind, event.value) == ("error", f"ValueError: policy {set_to or 'passive'}")
