"""Measure time and memory of attention layers, beside the same layer without positions.

All layers take turns in one run, in a new order each round, so that a noisy machine disturbs all
alike; the figure is the median. Memory is the peak of tensors alive, counted after each operation.
"""

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from posenc.attention.layer import SelfAttention
from posenc.core.masks import causal
from posenc.core.positions import folded


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of one forward pass, and of one with its backward pass."""

    forward: float
    training: float
    forward_memory: int
    training_memory: int


def costs(
    layers: list[SelfAttention], x: Tensor, rounds: int, step: Callable[[], None] = lambda: None
) -> list[Cost]:
    """`x` (batch, token, channel). Calls `step` after each of `rounds`."""
    jobs = [(n, kind) for n in range(len(layers)) for kind in (_forward, _training)]
    memory = {(n, kind): _peak(kind, layers[n], x) for n, kind in jobs}  # and a warm-up
    times: dict[Any, list[float]] = {job: [] for job in jobs}
    shuffled = random.Random(0)
    for _ in range(rounds):
        shuffled.shuffle(jobs)
        for n, kind in jobs:
            start = time.perf_counter()
            kind(layers[n], x)
            times[n, kind].append(time.perf_counter() - start)
        step()
    return [
        Cost(
            forward=statistics.median(times[n, _forward]),
            training=statistics.median(times[n, _training]),
            forward_memory=memory[n, _forward],
            training_memory=memory[n, _training],
        )
        for n in range(len(layers))
    ]


@torch.no_grad()
def _forward(layer: SelfAttention, x: Tensor) -> None:
    layer(x, folded(x.shape[-2], layer.encoding.axes), causal())


def _training(layer: SelfAttention, x: Tensor) -> None:
    layer(x, folded(x.shape[-2], layer.encoding.axes), causal()).sum().backward()
    layer.zero_grad()


def _peak(kind: Callable[[Any, Tensor], Any], layer: nn.Module, x: Tensor) -> int:
    with _Alive() as alive:
        kind(layer, x)
    return alive.peak


class _Alive(TorchDispatchMode):
    """Adds up the storages that operations allocate, as long as they are referenced."""

    def __init__(self):
        super().__init__()
        self.storages: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        inputs = {StorageWeakRef(s).cdata for s in _storages((args, kwargs))}
        outputs = func(*args, **(kwargs or {}))
        self.storages = {n: entry for n, entry in self.storages.items() if not entry[0].expired()}
        for storage in _storages(outputs):
            reference = StorageWeakRef(storage)
            if reference.cdata not in inputs:
                self.storages[reference.cdata] = reference, storage.nbytes()
        self.peak = max(self.peak, sum(size for _, size in self.storages.values()))
        return outputs


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
