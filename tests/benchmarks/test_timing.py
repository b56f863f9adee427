"""Times of calls whose cost is known, and of a clock that is made up."""

from itertools import chain, repeat

import pytest

from benchmarks import timing
from benchmarks.timing import Times, timed


def test_times_are_medians_of_single_calls(monkeypatch):
    """Short calls are taken several at once; of three samples of the long one, one is disturbed."""
    now, long = [0.0], chain(repeat(0.02, 6), [0.5], repeat(0.02))

    def call(seconds):
        now[0] += seconds

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(timing, "_waited", lambda: 0.0)
    found = timed({"short": lambda: call(0.0001), "long": lambda: call(next(long))}, 3, 1.0)
    medians = {name: one.median for name, one in found.items()}
    assert medians == pytest.approx({"short": 0.0001, "long": 0.02})
    assert {name: one.least for name, one in found.items()} == pytest.approx(medians)
    assert [one.samples for one in found.values()] == [3, 3]


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


def of_50_ms(monkeypatch):
    """A call that takes 50 ms of a clock that only it moves."""
    calls = []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: 0.05 * len(calls))
    return lambda: calls.append(0)


def test_samples_that_waited_for_a_core_are_dropped(monkeypatch):
    waits = iter([0.0, 0.0] * 2 + [0.0, 1.0, 1.0, 1.0] * 50)
    monkeypatch.setattr(timing, "_waited", lambda: next(waits))
    found = timed({"one": of_50_ms(monkeypatch)}, 4, 2.0)["one"]
    assert found.samples == 4
    assert 3 <= found.disturbed <= 5


def test_without_calm_samples_the_others_are_told(monkeypatch):
    waits = iter(range(10_000))
    monkeypatch.setattr(timing, "_waited", lambda: float(next(waits)))
    found = timed({"one": of_50_ms(monkeypatch)}, 4, 0.2)["one"]
    assert found.samples == found.disturbed >= 3


def test_on_busy_cores_every_sample_counts(monkeypatch):
    """Waiting for a core is part of the measurement on busy cores."""
    monkeypatch.setattr(timing, "_waited", iter(range(1000)).__next__)
    found = timed({"waits": lambda: timing.time.sleep(0.001)}, 3, 1.0, busy=True)["waits"]
    assert (found.samples, found.disturbed) == (3, 0)
