"""Measure time and memory of attention layers, compared with the same layer without positions.

Times are CPU seconds of this process, which other processes influence little, unlike wall time. All
layers are timed once in each round, in a new order each round, and each time is divided by the time
of the first layer in the same round. A `Ratio` is the median of these quotients with its interval.
Memory is the peak of live tensors, counted after each operation.
"""

import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import partial
from math import comb
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from posenc.attention.layer import SelfAttention
from posenc.compat.private_torch import DispatchMode, tensors_in
from posenc.core.encoding import Encoding
from posenc.core.masks import causal
from posenc.core.positions import folded

# CPU seconds up to which a pass is timed in every round; slower passes are timed in fewer rounds
AFFORDED = 0.075
FEWEST = 2  # rounds in which every pass is timed
# The CPU clock of Windows advances in steps of 16 ms, which is longer than a pass
CLOCK = time.perf_counter if sys.platform == "win32" else time.process_time
READ_TO_CHECK = torch.ops.aten.aminmax.default  # the operation that checks positions


@dataclass(frozen=True)
class Ratio:
    """A layer's time divided by the time of the first layer, as the median over repeated rounds.

    `low` and `high` are the 95 % interval of the median. Fewer than six rounds have no such
    interval; then they are the smallest and the largest ratio.
    """

    median: float
    low: float
    high: float
    rounds: int


@dataclass(frozen=True)
class Cost:
    """CPU seconds and bytes of memory for a forward pass, and for forward and backward together."""

    forward: float
    training: float
    forward_memory: int
    training_memory: int
    forward_ratio: Ratio
    training_ratio: Ratio


@dataclass(frozen=True)
class AtLength:
    """Time and memory of a forward pass at one text length; None if the layer rejects it."""

    tokens: int
    seconds: float | None  # CPU seconds
    memory: int | None  # bytes
    ratio: Ratio | None


@dataclass(frozen=True)
class Count:
    """The work of a forward pass in operations and bytes, which do not depend on the machine."""

    operations: int  # calls of torch that allocate a tensor, without views and checks
    numbers: int  # numbers that these calls write
    memory: int  # bytes of live tensors at the peak


def count(layer: Any, x: Tensor) -> Count:
    """Count the work of a layer for `x`, (batch, token, channel), under a causal mask."""
    with _LiveTensors() as alive:
        _forward(layer, x)
    return Count(alive.operations, alive.numbers, alive.peak)


def cost_of_encoding(encoding: Encoding, dim: int, heads: int, tokens: int) -> Count:
    """Count the additional work of a layer compared with the same layer without an encoding."""
    x = torch.randn(1, tokens, dim * heads)
    more, plain = (
        count(SelfAttention(dim * heads, heads, added), x) for added in (encoding, Encoding())
    )
    return Count(*(a - b for a, b in zip(astuple(more), astuple(plain), strict=True)))


def costs(
    layers: list[SelfAttention], x: Tensor, rounds: int, step: Callable[[], None] = lambda: None
) -> list[Cost]:
    """Measure time and memory of layers on the input `x`, relative to the first layer.

    `x` is (batch, token, channel). `step` is called after each round.
    """
    jobs = [(n, kind) for n in range(len(layers)) for kind in (_forward, _training)]
    # This run is a warm-up too
    memory = {(n, kind): _peak(kind, layers[n], x) for n, kind in jobs}
    times = _time_in_rounds(
        {(n, kind): partial(kind, layers[n], x) for n, kind in jobs}, rounds, step
    )
    return [
        Cost(
            forward=statistics.median(times[n, _forward].values()),
            training=statistics.median(times[n, _training].values()),
            forward_memory=memory[n, _forward],
            training_memory=memory[n, _training],
            forward_ratio=_ratio(times[n, _forward], times[0, _forward]),
            training_ratio=_ratio(times[n, _training], times[0, _training]),
        )
        for n in range(len(layers))
    ]


def by_length(
    layers: Sequence[SelfAttention],
    rounds: Mapping[int, int],
    step: Callable[[], None] = lambda: None,
) -> list[list[AtLength]]:
    """Measure time and memory of a forward pass of each layer at each text length.

    `rounds` maps each length to the number of rounds in which all layers are timed. The first layer
    is the baseline, and must accept every length. `step` is called after each round.
    """
    measured: list[list[AtLength]] = [[] for _ in layers]
    for tokens, times_each in rounds.items():
        texts = [torch.randn(1, tokens, layer.width) for layer in layers]
        memory: dict[int, int] = {}
        for n, layer in enumerate(layers):
            # A table may have fewer rows than tokens
            with suppress(IndexError):
                memory[n] = _peak(_forward, layer, texts[n])
        runs = {n: partial(_forward, layers[n], texts[n]) for n in memory}
        times = _time_in_rounds(runs, times_each, step)
        for n, lengths_of in enumerate(measured):
            if n in memory:
                median = statistics.median(times[n].values())
                lengths_of.append(AtLength(tokens, median, memory[n], _ratio(times[n], times[0])))
            else:
                lengths_of.append(AtLength(tokens, None, None, None))
    return measured


def _time_in_rounds(
    runs: Mapping[Any, Callable[[], Any]], rounds: int, step: Callable[[], None]
) -> dict[Any, dict[int, float]]:
    """Time every run once per round, and return the CPU seconds.

    The order of the runs is random in each round. The result maps each run to its seconds by
    round.

    A run is skipped after `FEWEST` rounds once it has used `AFFORDED` seconds per round.
    """
    times: dict[Any, dict[int, float]] = {job: {} for job in runs}
    jobs, shuffled = [*runs], random.Random(0)
    for number in range(rounds):
        shuffled.shuffle(jobs)
        for job in jobs:
            if number >= FEWEST and sum(times[job].values()) > AFFORDED * rounds:
                continue
            start = CLOCK()
            runs[job]()
            times[job][number] = CLOCK() - start
        step()
    return times


def _ratio(times: Mapping[int, float], baseline: Mapping[int, float]) -> Ratio:
    """Divide a run's times by the baseline's times in the same rounds."""
    shared = times.keys() & baseline.keys()
    return ratio_of([times[number] / baseline[number] for number in shared])


def ratio_of(quotients: Sequence[float]) -> Ratio:
    """Return the median of time ratios and the 95 % confidence interval of the median.

    The k-th smallest and the k-th largest of n quotients enclose the median, unless fewer than k of
    n fair coins show the same side.

    >>> ratio_of([1.0, 1.2, 1.1, 1.3, 0.9, 1.4, 1.5])
    Ratio(median=1.2, low=0.9, high=1.5, rounds=7)
    """
    ordered, count = sorted(quotients), len(quotients)
    outside, left_out = 2 / 2**count, 0
    while (outside := outside + 2 * comb(count, left_out + 1) / 2**count) <= 0.05:
        left_out += 1
    return Ratio(
        statistics.median(ordered),
        ordered[left_out],
        ordered[-1 - left_out],
        count,
    )


@torch.no_grad()
def _forward(layer: Any, x: Tensor) -> None:
    layer(x, folded(x.shape[-2], layer.encoding.axes), causal())


def _training(layer: SelfAttention, x: Tensor) -> None:
    layer(x, folded(x.shape[-2], layer.encoding.axes), causal()).sum().backward()
    layer.zero_grad()


def _peak(kind: Callable[[Any, Tensor], Any], layer: nn.Module, x: Tensor) -> int:
    with _LiveTensors() as alive:
        kind(layer, x)
    return alive.peak


class _LiveTensors(DispatchMode):
    """A torch dispatch mode that counts operations and measures the memory of live tensors."""

    def __init__(self):
        super().__init__()
        self.storages: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = self.operations = self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        inputs = {StorageWeakRef(x.untyped_storage()).cdata for x in tensors_in((args, kwargs))}
        outputs = func(*args, **(kwargs or {}))
        self.storages = {n: entry for n, entry in self.storages.items() if not entry[0].expired()}
        new = [
            x
            for x in tensors_in(outputs)
            if StorageWeakRef(x.untyped_storage()).cdata not in inputs
        ]
        for x in new:
            reference = StorageWeakRef(x.untyped_storage())
            self.storages[reference.cdata] = reference, x.untyped_storage().nbytes()
        if func is not READ_TO_CHECK:
            self.operations += bool(new)
            self.numbers += sum(x.numel() for x in new)
        self.peak = max(self.peak, sum(size for _, size in self.storages.values()))
        return outputs
