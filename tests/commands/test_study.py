"""`posenc study`, as a person types it."""

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from study_runner import PLAN, TINY

from posenc.lab.study import execute, store, train
from posenc.lab.study.cell import PROFILES
from posenc.lab.study.lock import locked
from posenc.lab.study.plan import Plan


def test_a_study_prints_its_table_with_hypothesis_hash_and_stamp(out):
    assert "hypothesis, as registered: None beats any." in out
    where = f"learning rate {TINY.rate:g}, {TINY.steps} steps, 2 seeds"
    assert f"outcomes hold over L…2L, L = 10, {where}" in out
    assert Plan.of(PLAN).digest in out
    assert "4 of 4 cells" in out
    assert "copy generated: texts all right, %" in out
    assert "pilot: not evidence" in out
    assert "nope − rope" in out
    assert "undertrained: nope, rope" in " ".join(out.split())


def test_a_finished_study_is_not_run_again(out, posenc, monkeypatch):
    before = Path("out/results.db").read_bytes()
    monkeypatch.setattr(execute.Processes, "start", lambda *_: 1 / 0)
    assert posenc("study", "--resume", "out")[:2] == (0, out)
    assert Path("out/results.db").read_bytes() == before


def test_a_study_leaves_its_page_beside_the_store(out):
    held = json.loads(Path("out/results.json").read_text())
    assert held["registered"] == Plan.of(PLAN).digest
    assert held["starts"][0]["command"] == "posenc study plan.toml --pilot --out out"
    assert "None beats any." in Path("out/index.html").read_text()


def test_without_the_extra_for_pages_a_study_says_how_to_get_one(posenc, fast, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "posenc.show.report.page", raising=False)
    monkeypatch.delattr("posenc.show.report.page", raising=False)
    Path("plan.toml").write_text(Plan.of(PLAN).text)
    code, _, err = posenc("study", "plan.toml", "--pilot", "--out", "out")
    assert (code, Path("out/index.html").exists()) == (0, False)
    assert "no page: the extra `report` is not installed (jinja2 is missing)" in err


def test_without_the_extra_for_studies_nothing_is_trained(posenc, fast, monkeypatch):
    for name in ("safetensors", "safetensors.torch"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(execute.Processes, "start", lambda *_: 1 / 0)
    code, _, err = posenc("study", "--out", "out")
    assert (code, Path("out/results.db").exists()) == (2, False)
    wanted = r"error: .*`study`, which is not installed: python -m pip install -e"
    assert re.match(wanted, err.splitlines()[-1])
    assert "registered" not in err


def test_a_plan_is_called_registered_once_it_is(posenc, fast, monkeypatch):
    Path("plan.toml").write_text(Plan.of(PLAN).text)
    line = f"registered: sha256 {Plan.of(PLAN).digest}, in out"
    code, _, err = posenc("study", "plan.toml", "--pilot", "--out", "out")
    assert (code, err.splitlines().count(line)) == (0, 1)
    Path("bad.toml").write_text(Plan.of(PLAN | {"metric": "at 99"}).text)
    code, _, err = posenc("study", "bad.toml", "--pilot", "--out", "other")
    assert (code, "registered" in err) == (2, False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["results"], "PATH"),
        (["results", "nowhere"], "got nowhere, which does not exist"),
        (["results", __file__], "must be the store of a study"),
        (["study", "--task", "copi"], "no task is called 'copi': did you mean copy?"),
        (["study", "--encoding", "ropy"], "encodings: ropy: "),
        (["study", "--profile", "tiny"], "profile: 'tiny' is not known: known are smoke, cpu, gpu"),
        (["study", "--seeds", "0"], "seeds: must be a whole number from 1"),
        (["study", "nowhere.toml"], "nowhere.toml cannot be read: No such file"),
        (
            ["study", "nowhere.toml", "--seeds", "3"],
            "nowhere.toml and options. Leave out the plan or the options",
        ),
        (["study", "--resume", "x", "--seeds", "3"], "`--resume` continues the plan in its folder"),
        (["study", "--resume", "nowhere"], "which does not exist"),
        (["study", "--workers", "0"], "Must be >= 1"),
        (["study", "--max-minutes", "-1"], "Must be > 0"),
        (["study", "--task", "language", "--text", "gone.txt"], "gone.txt cannot be read"),
        (["study", "--encoding", "gone.py:Mine"], "there is no file gone.py"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(posenc, fast, words, said):
    code, out, err = posenc(*words)
    assert (code, out) == (2, "")
    last = err.splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last


def test_options_make_the_plan_and_nothing_is_needed(posenc, monkeypatch):
    made = []

    def study(plan, folder, *_, **__):
        made.append((plan, folder))
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "study", study)
    code, _, err = posenc("study", "--task", "copy")
    assert code == 130
    assert f"to continue: posenc study --resume {made[0][1]}" in err
    _, _, err = posenc("study", "--part", "1/2", "--keep")
    assert f"to continue: posenc study --resume {made.pop()[1]} --part=1/2 --keep" in err
    posenc("study", "--task", "copy", "sort", "--encoding", "rope", "--profile", "cpu")
    (smoke, folder), (cpu, _) = made
    assert (smoke.tasks, smoke.seeds, smoke.profile) == (("copy",), 1, PROFILES["smoke"])
    assert smoke.labels == ("nope", "rope", "sinusoidal", "alibi", "t5")
    assert folder == Path(f"study-{smoke.digest[:8]}")
    assert (cpu.tasks, cpu.labels, cpu.seeds) == (("copy", "sort"), ("rope",), 6)


def test_what_is_not_done_is_named_and_the_exit_code_says_so(posenc, fast, monkeypatch):
    missing = [(Plan.of(PLAN).cells()[0], "TypeError: no tensor")]

    def ended(plan, folder, *_, **__):
        store.Store(folder).close()
        return execute.Ended(3, 4, missing)

    monkeypatch.setattr(execute, "study", ended)
    Path("plan.toml").write_text(Plan.of(PLAN).text)
    code, _, err = posenc("study", "plan.toml", "--pilot", "--out", "out")
    assert code == 1
    assert "not done: copy nope, seed 1: TypeError: no tensor" in err
    assert "to continue: posenc study --resume out" in err
    assert err.splitlines()[-1].startswith("error: 1 of 4 training runs failed")


REFUSED = """
import sys
from posenc.commands import cli
try:
    cli.main(["study", "plan.toml", "--pilot", "--out", "."])
except SystemExit as stop:
    print(stop.code, "torch" in sys.modules)
"""


def test_a_second_process_is_refused_before_torch_is_loaded(posenc, tmp_path):
    """Within a second, that is: torch alone takes longer to load."""
    with locked(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", REFUSED], capture_output=True, text=True, cwd=tmp_path
        )
    assert done.stdout == "2 False\n"
    assert "is in use by process" in done.stderr


@pytest.fixture
def trained_here(monkeypatch):
    """Studies that train as they are, in this process."""

    class Here:
        free, busy = 1, 0

        def __init__(self, runner, cells, *_):
            self.done, self.place = [], (runner, cells)

        def start(self, cell):
            event = execute.run_cell(cell, *self.place, lambda: False, lambda progress: None)
            self.done.append(event)
            self.busy = 1

        def wait(self, seconds):
            events, self.done, self.busy = self.done, [], 0
            return events

        def stop(self):
            pass

        close = stop

    monkeypatch.setattr(execute, "Processes", Here)


@pytest.mark.parametrize(
    ("task", "encodings", "trained", "protocols", "unit"),
    [
        ("masked", ("rope", "learned"), 8, {"apart"}, "apart: bits per word, less is better"),
        ("sentences", ("rope", "learned"), None, {"forced"}, "forced: sentences all right, %"),
        ("images", ("axial-rope", "nope"), None, {"forced"}, "forced: pictures all right, %"),
    ],
)
def test_texts_and_pictures_that_are_read_both_ways(
    posenc, trained_here, task, encodings, trained, protocols, unit
):
    """A few steps of training, on files of one's own; the store is read by another command."""
    import numpy

    felt = (("good", "well "), ("bad", "ill "))
    lines = [f"{felt[n % 2][0]}\t{felt[n % 2][1] * (18 + n % 5)}" for n in range(600)]
    Path("sentences.tsv").write_text("\n".join(lines))
    pictures = numpy.random.default_rng(0).integers(0, 16, (40, 4, 4))
    numpy.savez("pictures.npz", pictures=pictures, labels=numpy.arange(40) % 2)
    content = PLAN | {"tasks": [task], "encodings": [*encodings], "seeds": 1, "contrast": []}
    content |= {"profile": asdict(TINY) | {"width": 16, "steps": 3, "prompts": 4}}
    del content["trained"]
    content |= {"trained": trained, "tested": [trained, 2 * trained]} if trained else {}
    content |= {"sentences": {"text": "sentences.tsv"}, "images": {"images": "pictures.npz"}}.get(
        task, {}
    )
    Path("plan.toml").write_text(Plan.of(content).text)
    code, said, err = posenc("study", "plan.toml", "--pilot", "--out", "out")
    assert code == 0, err
    assert unit in said
    held = store.read(Path("out")).records
    assert {record.failure for record in held.values()} == {None}
    assert {name for record in held.values() for name, _ in record.outcomes} >= protocols
    assert posenc("results", "out")[1] == said


def test_without_scikit_learn_the_digits_say_how_to_get_it(posenc, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    code, _, err = posenc("study", "--task", "images", "--out", "out")
    assert code == 2
    assert "your own pictures" in err
    assert 'python -m pip install -e ".[images]" in ' in err


@pytest.mark.slow
def test_the_whole_way_with_training(posenc, tmp_path):
    """The command as it is, its processes started from nothing, with every kind of encoding."""
    content = {"tasks": ["copy"], "encodings": ["nope", "rope", "alibi"], "seeds": 1}
    content["profile"] = asdict(TINY) | {"width": 16, "steps": 60, "prompts": 20}
    Path("plan.toml").write_text(Plan.of(content).text)
    code, out, err = posenc("study", "plan.toml", "--pilot", "--out", "out")
    assert code == 0, err
    assert "pilot: not evidence" in out
    held = store.read(Path("out")).records
    cell = execute.resolved(Plan.of(content))[1]
    alone = train.run(cell, execute.tasks.find("copy"))
    assert held[cell.digest].losses == alone.losses
    for place, values in alone.outcomes.items():
        assert held[cell.digest].outcomes[place].values.equal(values)


@pytest.mark.parametrize("part", ["0/2", "3/2", "2", "a/b", "1/2/3"])
def test_a_part_that_is_none_is_refused(posenc, fast, part):
    code, _, said = posenc("study", "plan.toml", "--pilot", "--out", "out", "--part", part)
    assert code != 0
    message = f"`--part` must be like 2/5, the second of five parts, got '{part}'"
    assert message in " ".join(said.split())
