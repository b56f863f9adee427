"""Measure time and memory of attention layers, beside the same layer without positions.

All layers take turns in one run, in a new order each round, so that a noisy machine disturbs all
alike; the figure is the median. Memory is the peak of tensors alive, counted after each operation.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from posenc.attention.layer import SelfAttention
from posenc.core.encoding import Encoding
from posenc.core.masks import causal
from posenc.core.positions import folded
from posenc.core.private import DispatchMode

PATIENCE = 12.0  # seconds of rounds, after which only the fewest are taken
FEWEST = 3  # rounds
READ_TO_CHECK = torch.ops.aten.aminmax.default  # the ends of positions, which must be finite


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of one forward pass, and of one with its backward pass."""

    forward: float
    training: float
    forward_memory: int
    training_memory: int
    forward_range: tuple[float, float]  # seconds, between which half of the runs lie
    training_range: tuple[float, float]
    # Rounds that the medians are of: fewer than asked for where the machine was busy
    rounds: int = 0


@dataclass(frozen=True)
class AtLength:
    """One forward pass of a text of `tokens`; None where the encoding refuses so many."""

    tokens: int
    seconds: float | None
    range: tuple[float, float] | None  # seconds, between which half of the runs lie
    memory: int | None  # bytes


@dataclass(frozen=True)
class Count:
    """The work of a forward pass: the same on every machine, unlike seconds."""

    operations: int  # calls of torch that make a tensor; views make none, checks are left out
    numbers: int  # numbers that these calls write
    memory: int  # bytes alive at the peak


def count(layer: Any, x: Tensor) -> Count:
    """Count the work of a layer on `x` (batch, token, channel), under a causal mask."""
    with _Alive() as alive:
        _forward(layer, x)
    return Count(alive.operations, alive.numbers, alive.peak)


def cost_of_encoding(encoding: Encoding, dim: int, heads: int, tokens: int) -> Count:
    """Count what a layer does more than the same layer without an encoding."""
    x = torch.randn(1, tokens, dim * heads)
    more, plain = (
        count(SelfAttention(dim * heads, heads, added), x) for added in (encoding, Encoding())
    )
    return Count(*(a - b for a, b in zip(astuple(more), astuple(plain), strict=True)))


def costs(
    layers: list[SelfAttention], x: Tensor, rounds: int, step: Callable[[], None] = lambda: None
) -> list[Cost]:
    """Measure layers on `x` (batch, token, channel). Calls `step` after each of `rounds`."""
    jobs = [(n, kind) for n in range(len(layers)) for kind in (_forward, _training)]
    # This warms the layers up too
    memory = {(n, kind): _peak(kind, layers[n], x) for n, kind in jobs}
    times = _in_turns(
        {(n, kind): partial(kind, layers[n], x) for n, kind in jobs}, rounds, step, PATIENCE
    )
    return [
        Cost(
            forward=statistics.median(times[n, _forward]),
            training=statistics.median(times[n, _training]),
            forward_memory=memory[n, _forward],
            training_memory=memory[n, _training],
            forward_range=_quartiles(times[n, _forward]),
            training_range=_quartiles(times[n, _training]),
            rounds=len(times[n, _training]),
        )
        for n in range(len(layers))
    ]


def by_length(
    layers: Sequence[SelfAttention],
    rounds: Mapping[int, int],
    step: Callable[[], None] = lambda: None,
) -> list[list[AtLength]]:
    """Measure forward passes by length, `rounds` of each; calls `step` after each round."""
    patience = PATIENCE / max(1, len(rounds))
    measured: list[list[AtLength]] = [[] for _ in layers]
    for tokens, times_each in rounds.items():
        texts = [torch.randn(1, tokens, layer.width) for layer in layers]
        memory: dict[int, int] = {}
        for n, layer in enumerate(layers):
            # A table may have no row for the last of so many tokens
            with suppress(IndexError):
                memory[n] = _peak(_forward, layer, texts[n])
        runs = {n: partial(_forward, layers[n], texts[n]) for n in memory}
        times = _in_turns(runs, times_each, step, patience)
        for n, lengths_of in enumerate(measured):
            if n in memory:
                median = statistics.median(times[n])
                lengths_of.append(AtLength(tokens, median, _quartiles(times[n]), memory[n]))
            else:
                lengths_of.append(AtLength(tokens, None, None, None))
    return measured


def _in_turns(
    runs: dict[Any, Callable[[], Any]], rounds: int, step: Callable[[], None], patience: float
) -> dict[Any, list[float]]:
    """Time each run in each round, in seconds, in a new order each round.

    After `patience` seconds only the `FEWEST` rounds are made up to: the machine is busy.
    """
    times: dict[Any, list[float]] = {job: [] for job in runs}
    jobs, shuffled, begun = [*runs], random.Random(0), time.perf_counter()
    for done in range(rounds):
        if done >= FEWEST and time.perf_counter() - begun > patience:
            break
        shuffled.shuffle(jobs)
        for job in jobs:
            start = time.perf_counter()
            runs[job]()
            times[job].append(time.perf_counter() - start)
        step()
    return times


def _quartiles(seconds: list[float]) -> tuple[float, float]:
    """The quartiles: half of the runs took between these."""
    if len(seconds) < 2:
        return seconds[0], seconds[0]
    first, _, third = statistics.quantiles(seconds, method="inclusive")
    return first, third


@torch.no_grad()
def _forward(layer: Any, x: Tensor) -> None:
    layer(x, folded(x.shape[-2], layer.encoding.axes), causal())


def _training(layer: SelfAttention, x: Tensor) -> None:
    layer(x, folded(x.shape[-2], layer.encoding.axes), causal()).sum().backward()
    layer.zero_grad()


def _peak(kind: Callable[[Any, Tensor], Any], layer: nn.Module, x: Tensor) -> int:
    with _Alive() as alive:
        kind(layer, x)
    return alive.peak


class _Alive(DispatchMode):
    """Adds up the storages that operations allocate, as long as they are referenced; and counts."""

    def __init__(self):
        super().__init__()
        self.storages: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = self.operations = self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        inputs = {StorageWeakRef(x.untyped_storage()).cdata for x in _tensors((args, kwargs))}
        outputs = func(*args, **(kwargs or {}))
        self.storages = {n: entry for n, entry in self.storages.items() if not entry[0].expired()}
        new = [
            x for x in _tensors(outputs) if StorageWeakRef(x.untyped_storage()).cdata not in inputs
        ]
        for x in new:
            reference = StorageWeakRef(x.untyped_storage())
            self.storages[reference.cdata] = reference, x.untyped_storage().nbytes()
        if func is not READ_TO_CHECK:
            self.operations += bool(new)
            self.numbers += sum(x.numel() for x in new)
        self.peak = max(self.peak, sum(size for _, size in self.storages.values()))
        return outputs


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    parts = tree.values() if isinstance(tree, Mapping) else tree
    known = isinstance(tree, Mapping | list | tuple)
    return [x for part in parts for x in _tensors(part)] if known else []
