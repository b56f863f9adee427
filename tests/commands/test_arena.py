"""`posenc arena`, as a person types it, from the first cell to the board."""

import json
from pathlib import Path

import pytest
import study_runner
from made_suite import TOML

from posenc.lab.arena import board, suite
from posenc.lab.study import execute, store

MINE = "from posenc import ALiBi\n\n\nclass Mine(ALiBi):\n    pass\n"


@pytest.fixture
def tiny(posenc, fast, monkeypatch, tmp_path):
    """A suite of one small study, in an empty folder with code of one's own."""
    (tmp_path / "suites").mkdir()
    Path("suites/tiny.toml").write_text(TOML)
    Path("mine.py").write_text(MINE)
    monkeypatch.setattr(suite, "FOLDER", tmp_path / "suites")
    monkeypatch.setattr(board.execute, "run_cell", run_cell(execute.run_cell))
    return posenc


def run_cell(whole):
    return lambda cell, runner, *rest: whole(cell, study_runner.run, *rest)


def test_without_an_encoding_it_says_what_is_asked_for(posenc):
    code, said, _ = posenc("arena")
    named = suite.Suite.named()
    assert code == 0
    assert f"suite v1, sha256 {named.digest}" in said
    assert "copy-20: copy-unique, L = 20, 6,000 steps, rates 0.0005, 0.001, 0.002, 8 seeds" in said
    told = json.loads(posenc("arena", "--json")[1])
    assert told["digest"] == named.digest
    assert {*told["studies"]} == {*named.studies}


def test_from_an_encoding_of_ones_own_to_the_board(tiny):
    entry = "mine.py:Mine"
    words = "arena", entry, "--suite", "tiny", "--out", "mine"
    code, _, err = tiny(*words, "--max-minutes", "0.0000001")
    assert code == 0
    assert f"20 cells are not done; to go on: posenc arena {entry} --suite tiny --out mine" in err
    code, _, err = tiny(*words)
    assert (code, "not done" in err) == (0, False)
    assert len(store.read(Path("mine/near")).records) == 20
    assert Path("mine/near/index.html").exists()
    before = Path("mine/near/results.db").read_bytes()
    assert tiny(*words)[0] == 0  # goes on where it is, which is the end
    assert Path("mine/near/results.db").read_bytes() == before
    added = "arena", "--add", "mine", "--suite", "tiny", "--board", "board"
    code, _, err = tiny(*added)
    assert code == 2
    assert "--allow-code mine.py:Mine" in err
    code, said, _ = tiny(*added, "--allow-code", entry, "--draw", "5")
    assert code == 0
    assert "(near, drawn by 5): equal bit by bit" in said
    page = Path("board/tiny.md").read_text("utf-8")
    assert f"| {entry} | entry | " in page
    for held, said in ((None, "has these outcomes already"), ("{", "is no board")):
        if held is not None:
            Path("board/tiny.json").write_text(held)
        code, _, err = tiny(*added, "--allow-code", entry)
        assert (code, said in err, "is trained again" in err) == (2, True, False)
    assert Path("board/tiny.json").read_text() == "{"


def test_what_cannot_be_is_said_in_one_line(tiny):
    for words, said in (
        (("rope", "--suite", "tiny"), "rope is a row of every arena"),
        (("kerple", "--suite", "huge"), "no suite is called 'huge': known are tiny"),
        (("kerple", "--add", "x", "--suite", "tiny"), "name no encoding beside it"),
        (("--add", "nothing", "--suite", "tiny"), "nothing/near does not exist"),
    ):
        code, _, err = tiny("arena", *words)
        assert (code, said in err.splitlines()[-1]) == (2, True), err
