"""`python -m studies.arena`, as a person types it, from the first cell to the board."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from made_suite import TOML

from posenc.lab.study import analysis, environment, execute, store, train
from posenc.lab.study.plan import Plan
from studies.arena import quick, suite
from studies.arena.__main__ import main

MINE = """from pathlib import Path
import os
from posenc import ALiBi

class Mine(ALiBi):
    def __init__(self, heads):
        Path(f"made-{os.getpid()}").touch()
        super().__init__(heads)
"""


@pytest.fixture
def arena(monkeypatch, capsys, tmp_path):
    """Run the module as typed, in an empty folder: exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        try:
            main([str(word) for word in words])
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def tiny(arena, monkeypatch, tmp_path):
    """A suite of one small study, in an empty folder with code of one's own."""
    (tmp_path / "suites").mkdir()
    Path("suites/tiny.toml").write_text(TOML)
    Path("mine.py").write_text(MINE)
    monkeypatch.setattr(suite, "FOLDER", tmp_path / "suites")
    whole = execute.study

    def study(*words, **named):
        return whole(*words, **named | {"runner": train.run, "start": "fork"})

    monkeypatch.setattr(execute, "study", study)
    return arena


def test_without_an_encoding_it_says_what_is_asked_for(arena):
    code, said, _ = arena()
    named = suite.Suite.named()
    assert code == 0
    assert f"suite v2, sha256 of its plans' texts {named.digest}" in said
    assert "v2 is a draft" in said
    assert "takes about 10 hours with 2 workers, 20 hours of one core" in said
    assert "recall: recall, L = 20, 1,500 steps, rates 0.001, 0.004, 8 seeds" in said
    told = json.loads(arena("--json")[1])
    assert told["digest"] == named.digest
    assert {*told["studies"]} == {*named.studies}


def test_baselines_of_an_earlier_run_are_not_trained_again(tiny):
    """Cells and losses as of a run that trains them, with the entry's own trained in any case."""
    assert tiny("alibi", "--suite", "tiny", "--out", "first")[0] == 0
    assert tiny("kerple", "--suite", "tiny", "--out", "alone")[0] == 0
    words = "kerple", "--suite", "tiny", "--baselines", "first"
    code, _, err = tiny(*words, "--out", "short", "--max-minutes", "0.0000001")
    assert "--baselines first" in err
    assert not Path("short").exists()
    code, _, err = tiny(*words, "--out", "second")
    assert code == 0
    assert "near: 15 stored cells of baselines are used" in err
    first, alone, second = (
        store.read(Path(name) / "near") for name in ("first", "alone", "second")
    )
    assert second.records.keys() == alone.records.keys()
    kept = second.records.keys() & first.records.keys()
    assert len(kept) == 15
    for name, record in second.records.items():
        assert record.outcomes == alone.records[name].outcomes
        assert record.losses == alone.records[name].losses
        assert ("entry" in record.cell.name) == (name not in kept)
    # Times of steps differ from run to run
    before, now = (
        {x["cell"]: x["step"] for x in store.times(Path(name) / "near") if "cell" in x}
        for name in ("first", "second")
    )
    assert {name: now[name] for name in kept} == {name: before[name] for name in kept}
    assert now.keys() == second.records.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["code", "processor"])
def test_baselines_of_other_code_or_another_processor_are_not_used(tiny, monkeypatch, name):
    assert tiny("alibi", "--suite", "tiny", "--out", "first")[0] == 0
    monkeypatch.setattr(environment, name, lambda: "another")
    _, _, err = tiny("kerple", "--suite", "tiny", "--baselines", "first", "--out", "second")
    assert "stored cells" not in err
    assert len(store.read(Path("second/near")).records) == 20


def test_it_runs_in_a_folder_of_ones_own(tmp_path):
    """The command is that of both pages, and finds the stored rows of --quick."""
    clone = Path(__file__).parents[3]
    for page in ("docs/studies.md", "studies/arena/README.md"):
        text = (clone / page).read_text("utf-8")
        assert "PYTHONPATH=~/posenc python -m studies.arena my_module.py:Mine --quick" in text
    words = "from studies.arena import quick; print(len(quick.stored()[1].rows))"
    paths = os.pathsep.join([str(clone), str(clone / "src")])
    ran = subprocess.run(
        [sys.executable, "-c", words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(ran.stdout) > 1


@pytest.mark.slow
def test_from_an_encoding_of_ones_own_to_the_board(tiny):
    entry = "mine.py:Mine"
    words = entry, "--suite", "tiny", "--out", "mine"
    code, _, err = tiny(*words, "--max-minutes", "0.0000001")
    assert code == 0
    go_on = f"python -m studies.arena {entry} --suite tiny --out mine"
    assert f"20 cells are not done; to continue: {go_on}" in err
    assert "--workers=2" in err
    code, _, err = tiny(*words)
    assert (code, "not done" in err) == (0, False)
    assert len(store.read(Path("mine/near")).records) == 20
    assert Path("mine/near/index.html").exists()
    before = Path("mine/near/results.db").read_bytes()
    assert tiny(*words)[0] == 0  # goes on where it is, which is the end
    assert Path("mine/near/results.db").read_bytes() == before
    added = "--add", "mine", "--suite", "tiny", "--board", "board"
    code, _, err = tiny(*added)
    assert code == 2
    assert "--allow-code mine.py:Mine" in err
    for mark in Path().glob("made-*"):
        mark.unlink()
    code, said, _ = tiny(*added, "--allow-code", entry, "--repeat", "5")
    assert code == 0
    assert said.count("(near): losses and outcomes equal to the bit") == 5
    page = Path("board/tiny.md").read_text("utf-8")
    assert f"| {entry} | entry | " in page
    processes = {x.name for x in Path().glob("made-*")}
    assert processes
    assert f"made-{os.getpid()}" not in processes
    for held, said in ((None, "must not have these outcomes yet"), ("{", "must be a board")):
        if held is not None:
            Path("board/tiny.json").write_text(held)
        code, _, err = tiny(*added, "--allow-code", entry)
        assert (code, said in err, "again" in err) == (2, True, False)
    assert Path("board/tiny.json").read_text() == "{"


QUICK = """
hypothesis = "It runs."
tasks = ["copy"]
encodings = ["nope", "rope"]
trained = 4
tested = [4, 5, 6, 7, 8]
seeds = 3
profile = { width = 16, heads = 2, layers = 1, steps = 3, batch = 4, prompts = 4 }
"""


def test_a_first_look_stands_beside_stored_rows(tiny, monkeypatch):
    """Two seeds of the entry, three of each stored row, and the command of the verdict."""
    plan = Plan.of(tomllib.loads(QUICK))
    execute.study(plan, Path("stored"), pilot=True)
    monkeypatch.setattr(quick, "BASELINES", Path("stored"))
    code, said, _ = tiny("mine.py:Mine", "--quick", "--suite", "tiny", "--out", "look")
    assert code == 0
    heads, entry, nope, rope, last = said.splitlines()[1:]
    assert heads.split()[:5] == ["row", "seeds", "n=4", "n=6", "n=8"]
    rows = {line.split()[0]: line.split() for line in (entry, nope, rope)}
    assert {name: row[1] for name, row in rows.items()} == {"entry": "2", "nope": "3", "rope": "3"}
    result = analysis.analyse(store.read(Path("look")))
    assert rows["entry"][2] == f"{100 * result.rows[0].means[4]:.0f}"
    assert rows["entry"][5] == f"{result.rows[0].parameters:,}"
    assert "not a verdict" in last
    assert "python -m studies.arena mine.py:Mine" in last
    assert store.read(Path("look")).sources[environment.PILOT]


def test_a_first_look_needs_trained_rows(tiny, monkeypatch):
    monkeypatch.setattr(quick, "BASELINES", Path("nowhere"))
    code, _, err = tiny("mine.py:Mine", "--quick", "--suite", "tiny")
    assert code == 2
    assert "nowhere" in err


def test_what_cannot_be_is_said_in_one_line(tiny):
    for words, said in (
        (("rope", "--suite", "tiny"), "the entry must differ from"),
        (("kerple", "--suite", "huge"), "`--suite` must be one of tiny, got 'huge'"),
        (("kerple", "--add", "x", "--suite", "tiny"), "`--add` must be used without an encoding"),
        (("--add", "nothing", "--suite", "tiny"), "got nothing/near, which does not"),
    ):
        code, _, err = tiny(*words)
        assert (code, said in err.splitlines()[-1]) == (2, True), err


def test_an_interrupted_arena_says_how_to_go_on(tiny, monkeypatch):
    def interrupted(*words, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "study", interrupted)
    code, _, err = tiny("alibi", "--suite", "tiny", "--out", "mine", "--workers", "3")
    assert code != 0
    assert "to continue: python -m studies.arena alibi --suite tiny --out mine --workers=3" in err
    code, _, err = tiny("alibi", "--quick", "--suite", "tiny", "--out", "look")
    assert code != 0
    assert "to continue: python -m studies.arena alibi --quick --out look" in err
