"""The layout while it runs: opens of one check, and files that additions touch."""

import runpy
from pathlib import Path

import pytest

LAYOUT = runpy.run_path(str(Path(__file__).parent.parent / "tools/layout.py"))
MOST = {"encoding": 3, "command": 1, "family": 1, "figure": 1}  # files, besides a test


def test_one_check_opens_a_config_twice():
    assert LAYOUT["opens"]() <= 2


@pytest.mark.parametrize(
    "addition",
    [
        "command",
        "family",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("encoding", "figure")),
    ],
)
def test_what_is_added_works_and_touches_few_files(addition):
    assert LAYOUT["touched"](addition) <= MOST[addition]


def test_an_addition_that_does_not_work_is_noticed(monkeypatch):
    additions = LAYOUT["ADDITIONS"]
    broken = dict(additions) | {
        "command": (additions["command"][0], additions["command"][1], "bye")
    }
    monkeypatch.setitem(LAYOUT["touched"].__globals__, "ADDITIONS", broken)
    with pytest.raises(LookupError, match="command"):
        LAYOUT["touched"]("command")


def test_rooms_are_few_and_none_imports_another_in_a_circle():
    below = LAYOUT["rooms"]()
    assert len(below) <= 15
    assert LAYOUT["floors"](below) <= 10
