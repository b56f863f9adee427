"""Growth of time and memory with length, ~ tokensᵖ, where least squares of logarithms give p.

p = 1 is linear, p = 2 quadratic. For short texts the overhead of calls dominates, so p over all
lengths is too small; the exponent between the two longest lengths is reported as well.

A layer of each encoding (4 heads of 64, causal, no gradients) is measured at doubled lengths until
the next one is rejected, or would need too much time or memory; the result has this limit.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from math import log
from time import perf_counter

import torch

from benchmarks import memory, rotation
from benchmarks.results import BenchTable, Growth
from benchmarks.timing import timed
from posenc.attention.layer import SelfAttention
from posenc.catalog import create
from posenc.core import masks
from posenc.core.positions import folded

ROTATED = ("a copy", "posenc interleaved:", "posenc half:", "transformers")
LENGTHS = tuple(2**n for n in range(8, 18))  # 256 … 131,072
LAYERS = LENGTHS[2:-1]  # 1,024 … 65,536, of a layer
HEADS, DIM = 4, 64


def of_rotations(rounds: int, budget: float, longest: int = LENGTHS[-1]) -> list[Growth]:
    """Time rotations of q and k (1, 4, tokens, 64) in float32, within `budget` seconds a length."""
    seconds: dict[str, dict[int, float]] = {}
    for tokens in (n for n in LENGTHS if n <= longest):
        q, k = torch.randn(2, 1, HEADS, tokens, DIM).unbind()
        ways = rotation.candidates(q, k, compiled=False)[0]
        ways = {n.partition(":")[0]: run for n, run in ways.items() if n.startswith(ROTATED)}
        with torch.no_grad():
            runs = {name: lambda run=run, q=q, k=k: run(q, k) for name, run in ways.items()}
            for name, times in timed(runs, rounds, budget).items():
                seconds.setdefault(name, {})[tokens] = times.median
    return [fit_growth("rotation", name, times) for name, times in seconds.items()]


def of_attention(tables: list[BenchTable], tokens: list[int]) -> list[Growth]:
    """Fit growth to the measured tables of forward attention, which may be fewer than planned."""
    seconds: dict[str, dict[int, float]] = {}
    for length, table in zip(tokens, tables, strict=False):
        for row in table.rows:
            seconds.setdefault(row.name, {})[length] = row.times.median
    return [
        fit_growth("attention", name, times) for name, times in seconds.items() if len(times) > 2
    ]


def of_layer(name: str, rounds: int, limit: float) -> list[Growth]:
    """Measure the memory of a layer in another process, then time it at the same lengths.

    Lengths are doubled while four times the seconds of a call are within `limit`.
    """
    megabytes = {int(n): mb for n, mb in memory.peaks("growth", name, str(limit)).items()}
    seconds: dict[int, float] = {}
    for tokens in megabytes:
        call = layer_call(name, tokens)
        once = _seconds(call)
        # A slow first call may have compiled a kernel, so a second one is timed
        if once > limit / 4:
            once = min(once, _seconds(call))
        again = {} if once > limit / 4 else timed({name: call}, rounds, limit)
        seconds[tokens] = again[name].median if again else once
    if len(seconds) < 2:
        return []
    grown = fit_growth("layer", name, seconds)
    *_, before, last = megabytes.values()
    reached = grown.tokens[-1]
    stopped = (
        f"{2 * reached:,} tokens are refused, or would take over {limit:g} s or half of memory"
    )
    return [
        replace(
            grown,
            megabytes=[*megabytes.values()],
            last_of_memory=round(log(max(last, 1) / max(before, 1)) / log(2), 3),
            stopped="" if reached == LAYERS[-1] else stopped,
        )
    ]


def peaks(name: str, limit: str) -> dict[str, float]:
    """Measure a layer's peak memory in MB by length, until the next length exceeds the limits.

    For an encoding with a last position, measurements end there.
    """
    peak_of: dict[str, float] = {}
    # The first call loads libraries
    layer_call(name, 256)()
    for tokens in LAYERS:
        call = layer_call(name, tokens)
        try:
            # The first call of a length may compile a kernel
            call()
        except IndexError:
            # The encoding has a last position
            break
        begun = perf_counter()
        peak_of[str(tokens)] = peak = memory.peak(call)
        # Twice the tokens need up to four times the time and memory
        if 4 * (perf_counter() - begun) > float(limit) or 4 * peak > _room() / 2:
            break
    return peak_of


def _seconds(call: Callable[[], object]) -> float:
    begun = perf_counter()
    call()
    return perf_counter() - begun


def layer_call(name: str, tokens: int) -> Callable[[], object]:
    """Return a function that calls a layer with this encoding on `tokens` tokens."""
    options = {"length": LAYERS[-1]} if name == "learned" else {}
    layer = SelfAttention(HEADS * DIM, HEADS, create(name, DIM, HEADS, **options))
    x, pos = torch.randn(1, tokens, HEADS * DIM), folded(tokens, layer.encoding.axes)

    def call() -> None:
        with torch.no_grad():
            layer(x, pos, masks.causal())

    return call


def _room() -> float:
    """Return the machine's free memory in MB."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20


def fit_growth(part: str, name: str, times: dict[int, float]) -> Growth:
    """Fit the exponent p of `times`, seconds by number of tokens.

    >>> fit_growth("", "", {256: 1.0, 512: 2.0, 1024: 8.0}).exponent
    1.5
    """
    x, y = [log(n) for n in times], [log(t) for t in times.values()]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    over = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    exponent = over / sum((a - mean_x) ** 2 for a in x)
    last = (y[-1] - y[-2]) / (x[-1] - x[-2])
    return Growth(part, name, list(times), list(times.values()), round(exponent, 3), round(last, 3))
