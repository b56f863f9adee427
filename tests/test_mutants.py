"""Planted faults: the record and what the docs state of it, and how faults are planted."""

import ast
import json
import math
from collections import Counter
from pathlib import Path

import pytest

from tools.mutants import PLANTED, Mutant, mutants_of, needed, planted

ROOT = Path(__file__).parent.parent
RECORD = json.loads((ROOT / "tests/mutants.json").read_text("utf-8"))
FAULTS = RECORD["mutants"]
RUNS = Counter(fault["run"] for fault in FAULTS)


def interval(right, of):
    """95 % for a share (Clopper and Pearson 1934): where either tail of the binomial is 2.5 %."""

    def at_least(n, p):
        return sum(math.comb(of, m) * p**m * (1 - p) ** (of - m) for m in range(n, of + 1))

    def where(n, tail):
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if at_least(n, middle) < tail else (low, middle)
        return low

    return where(right, 0.025) if right else 0.0, where(right + 1, 0.975) if right < of else 1.0


def test_the_interval_is_the_published_one():
    """0 of 10 and 8 of 10, as in tables of the exact binomial interval."""
    assert interval(0, 10) == pytest.approx((0, 0.3085), abs=1e-4)
    assert interval(8, 10) == pytest.approx((0.4439, 0.9748), abs=1e-4)


def test_the_docs_state_what_the_record_holds():
    text = " ".join((ROOT / "docs/tests.md").read_text("utf-8").split())
    assert all((ROOT / fault["file"]).is_file() for fault in FAULTS)
    noticed = len(FAULTS) - RUNS["none"]
    low, high = interval(RUNS["default"], noticed)
    harmless = sum("equivalent" in fault for fault in FAULTS)
    since, removed = (sum(name in fault for fault in FAULTS) for name in ("since", "removed"))
    for stated in (
        f"commit `{RECORD['commit'][:7]}`",
        f"keeps the {len(FAULTS)} of {sum(PLANTED.values())} faults whose source files",
        f"Of these {len(FAULTS)} faults, drawn",
        f"the default tests noticed {RUNS['default']}",
        f"only the slow or compiled tests noticed {RUNS['slow'] + RUNS['compiled']}",
        f"no test noticed {RUNS['none']}",
        f"{RUNS['default'] / noticed:.1%} (95 % interval {low:.1%} to {high:.1%})",
        f"{harmless} change no result",
        f"{since} now have a default test each",
        f"{removed} was in code that is gone",
    ):
        assert stated in text, stated


def test_every_fault_that_the_default_tests_missed_is_harmless_or_tested_since():
    for fault in FAULTS:
        missed = fault["run"] != "default"
        assert missed == bool({"equivalent", "since", "removed"} & fault.keys()), fault
        if "since" in fault:
            file, _, name = fault["since"].partition("::")
            nodes = ast.walk(ast.parse((ROOT / file).read_text("utf-8")))
            assert name in {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_a_fault_changes_one_token():
    source = 'LIMIT = 2\n\ndef f(x: "1"):\n    if x is None or x < LIMIT:\n        return x + 1.5\n'
    found = [*mutants_of("f.py", source)]
    lines = {one.mutated(source).splitlines()[one.line - 1].strip() for one in found}
    assert lines == {
        "LIMIT = 3",
        "if x is None and x < LIMIT:",
        "if x is not None or x < LIMIT:",
        "if x is None or x <= LIMIT:",
        "return x - 1.5",
        "return x + 2.5",
    }


def test_what_must_run_is_the_statement_or_any_function():
    """A line outside of functions, defaults of arguments included, runs for all tests at once."""
    source = "LIMIT = 2\n\ndef f(\n    x=3,\n):\n    y = (\n        x + 1\n    )\n    return y\n"
    assert needed(source, 7) == {6, 7}
    assert needed(source, 9) == {9}
    assert needed(source, 1) == needed(source, 4) == {6, 7, 8, 9}


def test_a_seed_draws_the_same_faults_from_every_room(monkeypatch):
    rooms = {"rotation": 3, "biases": 2}
    monkeypatch.setattr("tools.mutants.PLANTED", rooms)
    drawn = planted(1)
    assert drawn == planted(1) != planted(2)
    assert Counter(one.file.split("/")[2] for one in drawn) == rooms
    assert len({(one.file, one.line) for one in drawn}) == len(drawn)
    assert isinstance(drawn[0], Mutant)
    assert Path(ROOT / drawn[0].folder).is_dir()
