"""Measure how word order changes the output of an attention layer or of a whole model.

    shuffle    | read(shuffled x) − shuffled read(x) | / | read(x) |      of all tokens, or of each
    duplicate  | read(x)ᵢ − read(x)ⱼ | / | read(x)ᵢ |,  where tokens i and j are the same

Both are 0 for attention without positions and mask, which is permutation-equivariant: the output of
a word does not change if the sentence is shuffled, and two occurrences of a word have the same
output. A causal mask alone breaks this. Equivariant is not invariant: outputs are shuffled with
their words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.attention.layer import SelfAttention
from posenc.core.masks import Mask
from posenc.core.positions import folded
from posenc.core.shapes import Embeddings

Read = Callable[[Tensor], Tensor]  # words or vectors of words (1, token, …) -> (1, token, channel)


@dataclass(frozen=True)
class Order:
    """Changes of the output when a text is shuffled, with and without positions."""

    tokens: list[str]
    order: list[int]  # order[n] is the token that moves to index n
    change: list[float]  # relative change of each token's output, in the order of `tokens`
    without: list[float]  # the same without positions
    twins: tuple[int, int] | None  # two occurrences of one token
    apart: float | None  # relative difference between the outputs of the twins
    apart_without: float | None


@torch.no_grad()
def changes(read: Read, x: Tensor, order: Tensor) -> list[float]:
    """Return the relative change of each token's output when the tokens of `x` are permuted.

    `x` is (1, token, …), and the tokens are read in the order `order`.
    """
    before, after = read(x), read(x[:, order])
    change = torch.empty_like(before)
    change[:, order] = after - before[:, order]
    return (change.norm(dim=-1) / before.norm(dim=-1))[0].tolist()


@torch.no_grad()
def difference(read: Read, x: Tensor, i: int, j: int) -> float:
    """Return the relative difference between a model's outputs at tokens i and j of the input x."""
    out = read(x)
    return _share(out[:, i] - out[:, j], out[:, i])


def shuffle(layer: SelfAttention, x: Embeddings, order: Tensor, mask: Mask | None = None) -> float:
    """Return the relative change of a layer's output if the tokens of `x` are permuted.

    `x` is (1, token, channel).
    """
    read = reader_of(layer, mask)
    before, after = read(x), read(x[:, order])
    return _share(after - before[:, order], before)


def duplicate(
    layer: SelfAttention, x: Embeddings, i: int, j: int, mask: Mask | None = None
) -> float:
    """Return the relative difference between a layer's outputs at tokens i and j.

    Tokens i and j have equal inputs, so that a difference shows the influence of order.
    """
    return difference(reader_of(layer, mask), x, i, j)


def reader_of(layer: SelfAttention, mask: Mask | None = None) -> Read:
    """Return a function that applies a layer to embeddings at positions 0, 1, 2, …"""

    @torch.no_grad()
    def read(x: Tensor) -> Tensor:
        return layer(x, folded(x.shape[-2], layer.encoding.axes), mask)

    return read


def repeated(words: Sequence[str], shortest: int = 3) -> tuple[int, int] | None:
    """Return the first two indices of the longest word that occurs more than once, or None.

    >>> repeated("the dog chased another dog".split())
    (1, 4)
    """
    twice = [word for word in words if len(word) >= shortest and words.count(word) > 1]
    if not twice:
        return None
    word = max(twice, key=len)
    first = words.index(word)
    return first, words.index(word, first + 1)


def _share(change: Tensor, of: Tensor) -> float:
    return (change.norm() / of.norm()).item()
