"""A repetition held against the first study: committed stores, and ones changed by hand."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from refusals import refused

from posenc.lab.study import store
from posenc.lab.study.store import Contents, Outcome
from studies.questions.repetition import equal_cells, repetition

pytestmark = pytest.mark.repository
STUDIES = Path(__file__).parents[3] / "studies"


@pytest.fixture(scope="module")
def first() -> Contents:
    return store.read(STUDIES / "shape-text")


def changed(contents: Contents, encoding: str, seeds: set[int], bits: float) -> Contents:
    """Return the contents with more bits per character in these runs."""
    records = dict(contents.records)
    for name, record in contents.records.items():
        if record.cell.name == encoding and record.cell.seed in seeds:
            outcomes = {k: Outcome.of(one.values + bits) for k, one in record.outcomes.items()}
            records[name] = replace(record, outcomes=outcomes)
    return replace(contents, records=records)


def test_a_study_repeats_itself(first: Contents):
    for row in repetition(first, first):
        assert (row.agrees, row.equal, row.both, row.seeds) == (True, 7, 7, 7)
        assert row.first == row.again


def test_what_two_studies_have_in_common_is_compared_over_their_common_seeds(first: Contents):
    found = repetition(first, store.read(STUDIES / "properties-text"))
    assert {row.encoding for row in found} == {"nope", "rope", "sinusoidal", "alibi", "t5"}
    for row in found:
        assert (row.equal, row.both, row.seeds, row.agrees) == (3, 3, 3, True)
        runs = [r for r in first.records.values() if r.cell.name == row.encoding]
        ours = fmean(r.outcomes["sliding", 128].mean for r in runs if r.cell.seed <= 3)
        assert row.again is not None
        assert row.again.value == pytest.approx(ours, rel=1e-6)


def test_other_outcomes_are_not_equal_and_agree_only_within_the_interval(first: Contents):
    near = {r.encoding: r for r in repetition(changed(first, "rope", {1, 2}, 0.01), first)}
    assert (near["rope"].equal, near["rope"].both, near["rope"].agrees) == (5, 7, True)
    assert near["alibi"].equal == 7
    far = {r.encoding: r for r in repetition(changed(first, "alibi", {*range(8)}, 1.0), first)}
    assert (far["alibi"].equal, far["alibi"].agrees) == (0, False)
    assert equal_cells(changed(first, "t5", {4}, 0.5), first) == (34, 35)


def test_a_study_of_something_else_is_no_repetition(first: Contents):
    with refused(ValueError, "'at 1.2'", "'at 2.0'"):
        repetition(first, store.read(STUDIES / "shape-copy"))
    nothing = replace(first, records={})
    with pytest.raises(ValueError, match="tasks, encodings and seeds of the first run, got others"):
        repetition(first, nothing)
