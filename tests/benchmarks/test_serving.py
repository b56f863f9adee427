"""Benchmarks of serving, with few samples of small cases, compared with the reference."""

import pytest
import torch
from refusals import refused

from benchmarks import run, serving
from benchmarks.serving import Cached, Grouped, Packed, Prefill
from posenc import attend

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_others")]

SMALL = (
    Grouped(24, heads=8, groups=2, dim=8),
    Grouped(24, torch.bfloat16, heads=8, groups=2, dim=8),
    Cached(9, groups=4, heads=4, dim=8, new=5),
    Cached(9, groups=2, heads=4, dim=8, new=5),
    Packed(3, 7, heads=4, dim=8),
    Prefill(5, heads=4, dim=8),
)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_each_way_is_beside_its_limit_and_what_is_defined(case):
    table = serving.time_serving(case, 1, 0.0)
    assert table.row(table.limit).ratio == 1
    ours = [row for row in table.rows if row.ours]
    assert {row.name.removeprefix("posenc ") for row in ours} >= {*case.targets()}
    assert len(ours) >= 3
    assert all(row.error is not None for row in ours)


def test_the_rows_that_have_targets_are_measured():
    told = {str(case): dict(case.targets()) for case in serving.FULL}
    shared = {name: case for name, case in told.items() if name.startswith("grouped")}
    assert [case.get("ALiBi") for case in shared.values()] == [None, 0.55, 0.4, None, 0.65, 0.5]
    assert [case.get("NoPE") for name, case in told.items() if "cache" in name] == [1.3, 1.2]
    assert [case.get("PaTH") for name, case in told.items() if "cache" in name] == [3.0, None]
    assert {*serving.QUICK} < {*serving.FULL}


def test_targets_name_what_is_compared(monkeypatch):
    monkeypatch.setattr(Packed, "targets", lambda case: {"RoPE": 1.4})
    monkeypatch.setattr("benchmarks.memory.peaks", lambda *words: {"posenc RoPE": 41.0})
    told = serving.time_serving(Packed(3, 7, heads=4, dim=8), 1, 0.0).targets
    assert [(target.what, target.most) for target in told] == [
        ("RoPE, packed / separate causal calls", 1.4),
        ("RoPE, packed, MB", 40.0),
    ]
    assert not told[1].met


def test_a_way_that_is_wrong_is_not_timed(monkeypatch):
    wrong = lambda *args, **how: attend(*args, **how) * (1 if "implementation" in how else 1.1)  # noqa: E731
    monkeypatch.setattr(serving, "attend", wrong)
    with refused(AssertionError, "RoPE"):
        serving.time_serving(Packed(3, 7, heads=4, dim=8), 1, 0.0)


def test_the_peak_of_each_way_of_packed_documents_is_measured(monkeypatch):
    monkeypatch.setattr(serving, "Packed", lambda **how: Packed(3, 7, heads=4, dim=8))
    peaks = serving.peaks()
    assert {"separate causal calls", "posenc RoPE", "posenc ALiBi", "posenc T5"} == {*peaks}
    assert min(peaks.values()) >= 0


def test_a_run_of_serving_has_a_table_for_each_case(monkeypatch):
    effort = run.Effort(1, 0.0, (256,), 512, (), False, ("tiny",), served=SMALL[:2])
    monkeypatch.setattr(run, "QUICK", effort)
    found = run.benchmark(["serving"], quick=True)
    assert [table.case for table in found.tables] == [str(case) for case in SMALL[:2]]
    assert {table.part for table in found.tables} == {"serving"}
