"""A run of one part, few samples: its tables, its progress and its JSON."""

import pytest
from refusals import refused

from benchmarks import run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_others")]


def test_a_run_of_one_part(monkeypatch):
    monkeypatch.setattr(run, "QUICK", run.Effort(1, 0.0, (256,), (), False, ("tiny",)))
    doing = []
    found = run.benchmark(["rotation"], quick=True, progress=lambda *words: doing.append(words))
    assert len(found.tables) == 6  # each way and dtype, and both dtypes beside busy processes
    assert {table.part for table in found.tables} == {"rotation"}
    assert [done for _, done, _ in doing] == list(range(7))
    assert found.libraries.keys() >= {"transformers"}
    assert found.provenance.seed == 0
    tree = found.to_json()
    assert tree["tables"][0]["targets"][0]["met"] in (True, False)


def test_a_part_that_there_is_not():
    with refused(LookupError, "'rotating'"):
        run.benchmark(["rotating"])


def interrupted():
    raise KeyboardInterrupt


def test_an_interrupted_run_ends_with_what_it_has_measured(monkeypatch, benchmarked):
    table = benchmarked.tables[0]
    jobs = [("first", lambda: table), ("second", interrupted), ("third", interrupted)]
    monkeypatch.setattr(run, "_jobs", lambda part, effort, cases: jobs)
    found = run.benchmark(["attention"], quick=True)
    assert (found.tables, found.unmeasured) == ([table], ("second", "third"))
    monkeypatch.setattr(run, "_jobs", lambda part, effort, cases: jobs[1:])
    with pytest.raises(KeyboardInterrupt):
        run.benchmark(["attention"])


def test_whether_a_target_is_met_is_in_the_json(benchmarked):
    told = benchmarked.to_json()["tables"][0]["targets"]
    assert [one["met"] for one in told] == [True, False]
