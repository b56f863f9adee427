"""The cases that a quick run selects, counted by hand."""

import subprocess
import sys
from pathlib import Path

import pytest
from thorough import quick


def test_a_quick_run_takes_all_cases_of_tests_that_have_few():
    tests = {f"few[{n}]": "few" for n in range(9)} | {"alone": "alone"}
    assert quick(tests) == [*tests]


def test_a_quick_run_takes_each_fifth_of_many_like_cases():
    kept = quick({n: "many" for n in range(52)})
    assert kept == [*range(kept[0], 52, 5)]
    assert kept[0] < 5


def test_a_card_that_one_test_leaves_out_is_in_another():
    cases = {(test, card): f"test_{test}" for test in range(40) for card in range(50)}
    assert {card for _, card in quick(cases)} == {*range(50)}


@pytest.mark.slow
def test_tests_that_trace_are_skipped_with_a_sentence_under_the_shape_checker():
    """`pytest tests/compiled/test_rotate.py` runs the shape checker because of pyproject.toml."""
    folder = Path(__file__).parent / "compiled"
    asked = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-m", "",
         str(folder / "test_rotate.py")],
        cwd=folder.parents[1], capture_output=True, text=True,
    )  # fmt: skip
    assert "the shape checker stands in the way of tracing" in asked.stdout
    assert " skipped" in asked.stdout
    assert not any(word in asked.stdout for word in (" passed", " failed", " error"))
