"""Stores of parts against the store of the whole, and parts that do not belong together."""

from dataclasses import replace

import pytest
import study_runner
from refusals import refused

from posenc.lab.study import environment, execute, store
from posenc.lab.study.merge import merge
from posenc.lab.study.plan import Plan
from posenc.lab.study.store import StoreError, read

PLAN = Plan.of(study_runner.PLAN)


def study(folder, planned=PLAN, **rest):
    execute.study(planned, folder, 1, study_runner.run, start="fork", pilot=True, **rest)
    return folder


def test_parts_that_were_run_apart_make_the_store_of_the_whole(tmp_path):
    """To the byte, whatever their order, and twice as well as once."""
    whole = study(tmp_path / "whole")
    parts = [study(tmp_path / f"part-{n}", part=(n, 3)) for n in (1, 2, 3)]
    assert [len(read(part).records) for part in parts] == [2, 1, 1]
    assert merge(tmp_path / "merged", parts[::-1]) == 4
    assert merge(tmp_path / "merged", parts) == 0
    whole, merged = (folder / store.RESULTS for folder in (whole, tmp_path / "merged"))
    assert merged.read_bytes() == whole.read_bytes()
    assert sum("cell" in line for line in store.times(tmp_path / "merged")) == 4
    study(tmp_path / "merged")  # no cell is left
    assert merged.read_bytes() == whole.read_bytes()


def test_what_does_not_belong_together_is_refused_and_nothing_is_written(tmp_path, monkeypatch):
    part = study(tmp_path / "part", part=(1, 2))
    others = study(tmp_path / "others", replace(PLAN, hypothesis="Another."), part=(2, 2))
    with pytest.raises(StoreError, match="others must have results of the same plan"):
        merge(tmp_path / "merged", [part, others])
    monkeypatch.setattr(environment, "code", lambda: "another")
    later = study(tmp_path / "later", part=(2, 2))
    with refused(StoreError, "`code`"):
        merge(tmp_path / "merged", [part, later])
    assert not (tmp_path / "merged").exists()


def test_a_cell_that_came_out_otherwise_is_named(tmp_path):
    one = study(tmp_path / "one", part=(1, 2))
    other = study(tmp_path / "other", part=(2, 2))
    writer = store.Store(other)
    record = next(iter(read(one).records.values()))
    writer.add(replace(record, outcomes={}))
    writer.close()
    with refused(StoreError, 1):
        merge(tmp_path / "merged", [one, other])
