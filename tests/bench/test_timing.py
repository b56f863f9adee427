"""Times and memory against calls whose cost is known, and a clock that is made up."""

import time

import pytest
import torch

from posenc.bench import memory, timing
from posenc.bench.timing import Times, timed


def test_times_are_medians_of_single_calls():
    found = timed({"short": lambda: time.sleep(0.002), "long": lambda: time.sleep(0.02)}, 3, 1.0)
    assert 0.002 <= found["short"].median < 0.01
    assert 0.02 <= found["long"].median < 0.04
    assert all(one.least <= one.median and one.samples >= 3 for one in found.values())


def test_everybody_gets_the_same_time_and_all_are_spread(monkeypatch):
    calls, now = [], [0.0]

    def call(name, seconds):
        calls.append(name)
        now[0] += seconds

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(timing, "_waited", lambda: 0.0)
    runs = {name: lambda n=name, s=s: call(n, s) for name, s in (("fast", 1.0), ("slow", 10.0))}
    found = timed(runs, 1000, 200.0)
    assert abs(found["fast"].samples - 10 * found["slow"].samples) <= 25
    assert "slow" in calls[-25:]  # not all at the beginning
    assert found["fast"] == Times(1.0, 1.0, found["fast"].samples, 0)


def test_samples_that_waited_for_a_core_are_dropped(monkeypatch):
    waits = iter([0.0, 0.0] * 2 + [0.0, 1.0, 1.0, 1.0] * 50)
    monkeypatch.setattr(timing, "_waited", lambda: next(waits))
    found = timed({"one": lambda: time.sleep(0.05)}, 4, 2.0)["one"]
    assert found.samples == 4
    assert 3 <= found.disturbed <= 5


def test_without_calm_samples_the_others_are_told(monkeypatch):
    waits = iter(range(10_000))
    monkeypatch.setattr(timing, "_waited", lambda: float(next(waits)))
    found = timed({"one": lambda: time.sleep(0.05)}, 4, 0.2)["one"]
    assert found.samples == found.disturbed >= 3


needs_linux = pytest.mark.skipif(not memory.STATUS.exists(), reason="reads what Linux tells")


@needs_linux
@pytest.mark.parametrize("mb", [64, 128])  # which malloc always fetches anew
def test_the_peak_is_what_is_made_and_not_what_was_there(mb):
    there = torch.ones(mb, 2**18)  # so many MB

    def twice_then_once():
        both = there + 1, there + 2
        return both[0]

    assert memory.peak(twice_then_once) == pytest.approx(2 * mb, rel=0.1, abs=2)


@needs_linux
def test_peaks_come_from_a_process_of_their_own():
    found = memory.peaks("embeddings")
    result = 8 * 2048 * 512 * 4 / 2**20
    assert found["a copy"] == pytest.approx(result, rel=0.1)
    assert found["posenc, rows made once a forward"] == pytest.approx(result, rel=0.1)
    assert found["posenc, rows made anew"] < 2.5 * result


@needs_linux
def test_what_goes_wrong_there_is_told_here():
    with pytest.raises(RuntimeError, match=r"memory of rotation .*KeyError: 'nowhere'"):
        memory.peaks("rotation", "nowhere", "float32")
