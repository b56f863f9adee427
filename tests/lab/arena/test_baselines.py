"""Stored baselines of the arena: used again, or not, by `posenc arena`."""

from pathlib import Path

import pytest
from arena_command import arena_fixture, tiny_fixture, typed_fixture  # noqa: F401

from posenc.lab.study import environment, store


def test_baselines_of_an_earlier_run_are_not_trained_again(tiny):
    """Cells and losses as of a run that trains them, with the entry's own trained in any case."""
    assert tiny("alibi", "--suite", "tiny", "--out", "first")[0] == 0
    assert tiny("kerple", "--suite", "tiny", "--out", "alone")[0] == 0
    words = "kerple", "--suite", "tiny", "--baselines", "first"
    code, _, err = tiny(*words, "--out", "short", "--max-minutes", "0.0000001")
    assert "--baselines first" in err
    assert not Path("short").exists()
    code, _, err = tiny(*words, "--out", "second")
    assert code == 0
    assert "near: 15 training runs of baselines are reused" in err
    first, alone, second = (
        store.read(Path(name) / "near") for name in ("first", "alone", "second")
    )
    assert second.records.keys() == alone.records.keys()
    kept = second.records.keys() & first.records.keys()
    assert len(kept) == 15
    for name, record in second.records.items():
        assert record.outcomes == alone.records[name].outcomes
        assert record.losses == alone.records[name].losses
        assert ("entry" in record.cell.name) == (name not in kept)
    # Times of steps differ from run to run
    before, now = (
        {x["cell"]: x["step"] for x in store.times(Path(name) / "near") if "cell" in x}
        for name in ("first", "second")
    )
    assert {name: now[name] for name in kept} == {name: before[name] for name in kept}
    assert now.keys() == second.records.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["code", "processor"])
def test_baselines_of_other_code_or_another_processor_are_not_used(tiny, monkeypatch, name):
    assert tiny("alibi", "--suite", "tiny", "--out", "first")[0] == 0
    monkeypatch.setattr(environment, name, lambda: "another")
    _, _, err = tiny("kerple", "--suite", "tiny", "--baselines", "first", "--out", "second")
    assert "of baselines are reused" not in err
    assert len(store.read(Path("second/near")).records) == 20
