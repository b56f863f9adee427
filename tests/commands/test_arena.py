"""`posenc arena`, as a person types it."""

import json
import tomllib
from pathlib import Path

from arena_command import arena_fixture, tiny_fixture, typed_fixture  # noqa: F401

from posenc.lab.arena import quick, suite
from posenc.lab.study import analysis, environment, execute, store
from posenc.lab.study.plan import Plan

QUICK = """
hypothesis = "It runs."
tasks = ["copy"]
encodings = ["nope", "rope"]
trained = 4
tested = [4, 5, 6, 7, 8]
seeds = 3
profile = { width = 16, heads = 2, layers = 1, steps = 3, batch = 4, prompts = 4 }
"""


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


def test_a_first_look_stands_beside_stored_rows(tiny, monkeypatch):
    """Two seeds of the entry, three of each stored row, and the command of the verdict."""
    plan = Plan.of(tomllib.loads(QUICK))
    execute.study(plan, Path("stored"), pilot=True)
    rows = quick.results(analysis.analyse(store.read(Path("stored"))))
    monkeypatch.setattr(quick, "stored", lambda: (plan, rows))
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
    assert "posenc arena mine.py:Mine" in last
    assert store.read(Path("look")).sources[environment.PILOT]


def test_what_cannot_be_is_said_in_one_line(tiny):
    for words, said in (
        (("rope", "--suite", "tiny"), "the entry must differ from"),
        (("kerple", "--suite", "huge"), "`--suite` must be one of tiny, got 'huge'"),
    ):
        code, _, err = tiny(*words)
        assert (code, said in err.splitlines()[-1]) == (2, True), err


def test_an_interrupted_arena_says_how_to_go_on(tiny, monkeypatch):
    def interrupted(*words, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "study", interrupted)
    code, _, err = tiny("alibi", "--suite", "tiny", "--out", "mine", "--workers", "3")
    assert code != 0
    assert "to continue: posenc arena alibi --suite tiny --out mine --workers=3" in err
    code, _, err = tiny("alibi", "--quick", "--suite", "tiny", "--out", "look")
    assert code != 0
    assert "to continue: posenc arena alibi --quick --out look" in err
