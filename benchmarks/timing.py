"""Fair timing of several functions, which are called in turn; disturbed samples are dropped.

The function with the least total time is called next (± 10 % at random), so that slow ones are
sampled less often and all are spread over the whole run. A sample is disturbed if our threads
waited for a core, which Linux reports in `schedstat`. Results are medians.
"""

import gc
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

SHORTEST_SAMPLE = 4e-3  # seconds; faster calls are repeated within a sample
WAITED_AT_MOST = 0.05  # greatest share of an undisturbed sample spent waiting for a core
FEWEST_SAMPLES = 3  # with fewer undisturbed samples, disturbed ones are used as well
WARM = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000"}

Run = Callable[[], object]


@dataclass(frozen=True)
class Times:
    median: float  # seconds
    least: float
    samples: int
    disturbed: int  # number of disturbed samples, dropped unless too few are left


def timed(
    runs: Mapping[str, Run], rounds: int, budget: float, busy: bool = False
) -> dict[str, Times]:
    """Time several functions, which are sampled in turn; disturbed samples are dropped.

    - `runs`: functions by name
    - `rounds`: number of samples of each
    - `budget`: seconds after which no further sample is taken, except for three of each
    - `busy`: True to keep every sample, because waiting for a core is part of the measurement
    """
    chance = random.Random(0)
    repeats = {name: _calls_a_sample(run) for name, run in runs.items()}
    spent = dict.fromkeys(runs, 0.0)
    calm: dict[str, list[float]] = {name: [] for name in runs}
    disturbed: dict[str, list[float]] = {name: [] for name in runs}
    stop = time.perf_counter() + budget
    gc.collect()
    gc.disable()
    try:
        while unfinished := [
            name
            for name in runs
            if len(calm[name]) + len(disturbed[name]) < FEWEST_SAMPLES
            or (len(calm[name]) < rounds and time.perf_counter() < stop)
        ]:
            name = min(unfinished, key=lambda name: spent[name] * chance.uniform(0.9, 1.1))
            seconds, waited = _seconds(runs[name], repeats[name])
            taken = seconds * repeats[name]
            spent[name] += taken
            kept = calm if busy or waited < WAITED_AT_MOST * taken else disturbed
            kept[name].append(seconds)
    finally:
        gc.enable()
    return {name: _summary(calm[name], disturbed[name]) for name in runs}


def malloc() -> str:
    """Return "warm" if malloc reuses memory for large tensors, or "default" if it does not."""
    return "warm" if os.environ.get("MALLOC_MMAP_MAX_") == "0" else "default"


def _summary(calm: list[float], disturbed: list[float]) -> Times:
    samples = calm if len(calm) >= FEWEST_SAMPLES else calm + disturbed
    return Times(statistics.median(samples), min(samples), len(samples), len(disturbed))


def _calls_a_sample(run: Run) -> int:
    """Return the number of calls for a sample that is long enough to be timed."""
    for calls in (1, 1, 3):
        seconds = _seconds(run, calls)[0]
        if seconds > 10 * SHORTEST_SAMPLE * calls:
            break
    return max(1, int(SHORTEST_SAMPLE / seconds))


def _seconds(run: Run, repeats: int) -> tuple[float, float]:
    """Return the seconds of one call, and the seconds that threads of this process waited."""
    waited, start = _waited(), time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats, _waited() - waited


def _waited() -> float:
    total = 0
    # On systems other than Linux the folder does not exist
    for thread in Path("/proc/self/task").glob("*/schedstat"):
        try:
            total += int(thread.read_text().split()[1])
        except OSError:
            pass
    return total * 1e-9
