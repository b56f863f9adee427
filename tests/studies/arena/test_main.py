"""`posenc arena` and `python -m studies.arena`, from the first cell to the board."""

import os
from pathlib import Path

import pytest
from arena_command import arena_fixture, tiny_fixture, typed_fixture  # noqa: F401

from posenc.lab.study import store
from studies.arena.__main__ import main


@pytest.mark.slow
def test_from_an_encoding_of_ones_own_to_the_board(tiny, typed):
    entry = "mine.py:Mine"
    words = entry, "--suite", "tiny", "--out", "mine"
    code, _, err = tiny(*words, "--max-minutes", "0.0000001")
    assert code == 0
    go_on = f"posenc arena {entry} --suite tiny --out mine"
    assert f"20 training runs are not done; to continue: {go_on}" in err
    assert "--workers=2" in err
    code, _, err = tiny(*words)
    assert (code, "not done" in err) == (0, False)
    assert len(store.read(Path("mine/near")).records) == 20
    assert Path("mine/near/index.html").exists()
    before = Path("mine/near/results.db").read_bytes()
    assert tiny(*words)[0] == 0  # goes on where it is, which is the end
    assert Path("mine/near/results.db").read_bytes() == before
    added = main, "mine", "--suite", "tiny", "--board", "board"
    code, _, err = typed(*added)
    assert code == 2
    assert "--allow-code mine.py:Mine" in err
    for mark in Path().glob("made-*"):
        mark.unlink()
    code, said, _ = typed(*added, "--allow-code", entry, "--repeat", "5")
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
        code, _, err = typed(*added, "--allow-code", entry)
        assert (code, said in err, "again" in err) == (2, True, False)
    assert Path("board/tiny.json").read_text() == "{"


@pytest.mark.slow
def test_a_folder_that_does_not_exist_is_refused_in_one_line(tiny, typed):
    code, _, err = typed(main, "nothing", "--suite", "tiny")
    assert (code, "got nothing/near, which does not" in err.splitlines()[-1]) == (2, True), err
