"""Faults of public threads, each named from outside, and their corrections, which pass.

The first 20 engines of `thread_faults.py` were written and committed before anything was read of
the code that names faults. At first sight it named 14 of them.
"""

import re
from pathlib import Path

import pytest
from lab.vectors.thread_faults import CASES

from posenc.lab.vectors.against import against


@pytest.mark.parametrize("name", CASES)
def test_the_fault_of_a_thread_is_named(name):
    case = CASES[name]
    found = against(case.faulty, case.config, case.length, case.layer).findings
    said = [f"{finding.name}. {finding.sentence}" for finding in found]
    assert any(all(re.search(word, one, re.I) for word in case.words) for one in said), said


@pytest.mark.parametrize("name", CASES)
def test_the_corrected_engine_of_a_thread_passes(name):
    case = CASES[name]
    assert against(case.fixed, case.config, case.length, case.layer).findings == ()


def test_the_readme_counts_the_faults_of_threads():
    readme = Path(__file__).parents[3] / "examples/vectors/README.md"
    text = " ".join(readme.read_text("utf-8").split())
    assert f"has {len(CASES)} faults from public issues" in text
    assert f"names all {len(CASES)} faults" in text
    assert f"no fault in the {len(CASES)} corrections" in text
