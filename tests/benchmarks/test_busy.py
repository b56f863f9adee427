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
    monkeypatch.setattr(busy, "ways", lambda: ways() | {"posenc ALiBi": busy.plain})
    with pytest.raises(AssertionError, match="not close"):
        busy.time_busy(64, "forward", "quiet", 1, 0.0)
