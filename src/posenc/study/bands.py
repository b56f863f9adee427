"""Which pairs break a text that is too long: swap the angles of one band, and see what comes back.

A model that was trained on L tokens reads n > L of them. The pairs of one band are slowed by n / L,
so that none of their angles is one it has never met ("slowed"), or do not turn at all ("still");
the others stay as they are, and nothing is trained. In bits per character,

    recovered = (bits(n) − bits(n, swapped)) / (bits(n) − bits(L))

1 where the band alone broke it, 0 where it had no part in it, below 0 where it is needed.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch

from posenc.core.arguments import count
from posenc.encodings.rotary.rope import RoPE
from posenc.study.cell import Cell
from posenc.study.evaluate import evaluate
from posenc.study.model import Transformer
from posenc.study.tasks import Task

How = Literal["slowed", "still"]


@dataclass(frozen=True)
class Swap:
    """The bits per character of a text of `length`, with the pairs of one band swapped."""

    length: int
    pairs: tuple[int, int]  # the first, and the one after the last
    how: How
    bits: float
    recovered: float


def swapped(model: Transformer, pairs: slice, factor: float) -> Transformer:
    """A copy of a model whose RoPE turns these pairs `factor` times as slowly; inf: not at all."""
    copy = deepcopy(model)
    for layer in copy.attentions():
        rope = layer.encoding
        if not isinstance(rope, RoPE) or rope.axes > 1:
            raise ValueError(
                f"bands are those of a RoPE of one axis, this model has {type(rope).__name__}."
            )
        theta = rope.theta.detach().clone()
        theta[pairs] /= factor
        layer.encoding = RoPE(
            theta, rope.dim, rope.gain, rope.layout, rope.trailing, rope.logit_gain
        )
    return copy


def swaps(
    model: Transformer, cell: Cell, task: Task, lengths: tuple[int, ...], bands: int = 4
) -> Iterator[Swap]:
    """Swap each of so many bands, from the fastest pairs to the slowest, at each length.

    Raises ValueError for a task that is not graded in bits, or a length that is not beyond L.
    """
    task = task.at(cell.trained, cell.tested)
    if not task.in_bits or task.both_ways:
        raise ValueError(f"bands are measured in bits per character, not by {task.name!r}.")
    if not lengths or min(lengths) <= task.trained:
        raise ValueError(
            f"`lengths` must be beyond the trained one, {task.trained}, got {list(lengths)}."
        )
    pairs = len(_theta(model))
    if pairs % count(bands, "bands"):
        raise ValueError(f"`bands` must divide the {pairs} pairs, got {bands}.")
    size = pairs // bands

    def bits(of: Transformer, n: int) -> float:
        return evaluate(of, cell, task, (n,))["sliding", n].double().mean().item()

    within = bits(model, task.trained)
    for n in lengths:
        broken = bits(model, n)
        for first in range(0, pairs, size):
            factors: dict[How, float] = {"slowed": n / task.trained, "still": torch.inf}
            for how, factor in factors.items():
                after = bits(swapped(model, slice(first, first + size), factor), n)
                recovered = (broken - after) / (broken - within)
                yield Swap(n, (first, first + size), how, after, recovered)


def _theta(model: Transformer) -> torch.Tensor:
    rope = next(model.encodings())
    return rope.theta if isinstance(rope, RoPE) else torch.empty(0)
