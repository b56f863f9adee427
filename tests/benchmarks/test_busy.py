"""Attention beside its usual form, few samples: compared with it, and the load is ended."""

import pytest
import torch

from benchmarks import busy, rotation

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_others")]


@pytest.mark.parametrize("kind", busy.KINDS)
@pytest.mark.parametrize("condition", busy.CONDITIONS)
def test_each_encoding_stands_beside_its_usual_form(kind, condition, monkeypatch):
    threads, begun, popen = torch.get_num_threads(), [], rotation.subprocess.Popen
    monkeypatch.setattr(
        rotation.subprocess, "Popen", lambda words: begun.append(popen(words)) or begun[-1]
    )
    table = busy.time_busy(64, kind, condition, 1, 0.0)
    assert len(table.targets) == 11
    for target in table.targets:
        name = target.what.removesuffix(" / usual")
        ours, usual = table.row(f"posenc {name}"), table.row(f"usual {name}")
        assert target.found == pytest.approx(ours.times.median / usual.times.median)
        assert target.most == 1.0
    assert len(begun) == (busy.BUSY if condition == "busy" else 0)
    assert all(process.returncode is not None for process in begun)
    assert torch.get_num_threads() == threads


def test_a_way_that_is_wrong_is_not_timed(monkeypatch):
    ways = busy.ways
    monkeypatch.setattr(busy, "ways", lambda names: ways(names) | {"posenc ALiBi": busy.plain})
    with pytest.raises(AssertionError, match="not close"):
        busy.time_busy(64, "forward", "quiet", 1, 0.0)


def test_only_the_encodings_named_are_timed():
    """Against the names of all rows."""
    table = busy.time_busy(64, "forward", "quiet", 1, 0.0, ["FoX"])
    assert {row.name for row in table.rows} == {busy.LIMIT, "posenc FoX", "usual FoX"}


def test_the_table_merges_stores_and_marks_cells_that_are_slower():
    """Against cells written by hand."""
    quiet, load = (busy.case("training", c, "default", 1024) for c in busy.CONDITIONS)
    stores = [
        {"tables": [{"case": case, "rows": [{"name": "posenc T5", "ratio": ours}, usual]}]}
        for case, ours, usual in (
            (quiet, 1.24, {"name": "usual T5", "ratio": 12.6}),
            (load, 3.0, {"name": "usual T5", "ratio": 2.0}),
        )
    ]
    [row] = [line for line in busy.markdown(stores).splitlines() if "T5" in line and "1.2" in line]
    assert row == "| T5 | — | — | — | 1.2 / 13 | **3.0 / 2.0** | — |"


@pytest.mark.parametrize(
    "named", [{"kinds": ["train"]}, {"conditions": ["loud"]}, {"names": ["alibi"]}]
)
def test_unknown_cases_are_refused_by_name(named):
    """Against the value that was passed."""
    [[value]] = named.values()
    with pytest.raises(LookupError, match=value):
        busy.Cases(**named)
