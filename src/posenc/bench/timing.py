"""Times of several callables, fairly: they take turns, and a sample that was disturbed is dropped.

Whoever has been given the least time so far goes next, with a little chance, so that what is slow
is sampled less often and all are spread over the whole run. A sample counts if our threads hardly
waited for a core; the system says how long they did. Figures are medians.
"""

import gc
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

SHORTEST = 4e-3  # seconds of one sample; what is faster is repeated
TOLERANCE = 0.05  # of a sample that our threads may have waited for a core
FEWEST = 3  # undisturbed samples; with less, disturbed ones must do
WARM = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000"}

Run = Callable[[], object]


@dataclass(frozen=True)
class Times:
    median: float  # seconds
    least: float
    samples: int
    disturbed: int  # samples dropped; with too few left, they are the samples


def timed(runs: Mapping[str, Run], rounds: int, budget: float) -> dict[str, Times]:
    """Seconds of one call of each, from `rounds` samples, or as many as fit into `budget`."""
    chance = random.Random(0)
    repeats = {name: _warmed(run) for name, run in runs.items()}
    spent = dict.fromkeys(runs, 0.0)
    calm: dict[str, list[float]] = {name: [] for name in runs}
    others: dict[str, list[float]] = {name: [] for name in runs}
    stop = time.perf_counter() + budget
    gc.collect()
    gc.disable()
    try:
        while unfinished := [
            name
            for name in runs
            if len(calm[name]) + len(others[name]) < FEWEST
            or (len(calm[name]) < rounds and time.perf_counter() < stop)
        ]:
            name = min(unfinished, key=lambda name: spent[name] * chance.uniform(0.9, 1.1))
            each, waited = _seconds(runs[name], repeats[name])
            taken = each * repeats[name]
            spent[name] += taken
            (calm if waited < TOLERANCE * taken else others)[name].append(each)
    finally:
        gc.enable()
    return {name: _told(calm[name], others[name]) for name in runs}


def malloc() -> str:
    """`default`: large tensors are fetched from the system anew each time, and cleared by it."""
    return "warm" if os.environ.get("MALLOC_MMAP_MAX_") == "0" else "default"


def _told(calm: list[float], others: list[float]) -> Times:
    kept = calm if len(calm) >= FEWEST else calm + others
    return Times(statistics.median(kept), min(kept), len(kept), len(others))


def _warmed(run: Run) -> int:
    """Number of calls in one sample."""
    for calls in (1, 1, 3):
        seconds = _seconds(run, calls)[0]
        if seconds > 10 * SHORTEST * calls:
            break
    return max(1, int(SHORTEST / seconds))


def _seconds(run: Run, repeats: int) -> tuple[float, float]:
    """Seconds of one call, and seconds that our threads waited for a core meanwhile."""
    waited, start = _waited(), time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats, _waited() - waited


def _waited() -> float:
    total = 0
    for thread in Path("/proc/self/task").glob("*/schedstat"):  # nothing where there is no Linux
        try:
            total += int(thread.read_text().split()[1])
        except OSError:
            pass
    return total * 1e-9
