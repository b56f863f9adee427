"""Test whether attention knows the order of words: two tests, of a layer or a whole model.

    shuffle    | read(shuffled x) − shuffled read(x) | / | read(x) |      of all tokens, or of each
    duplicate  | read(x)ᵢ − read(x)ⱼ | / | read(x)ᵢ |,  where tokens i and j are the same

Both are 0 for attention without positions and mask: it is permutation-equivariant, so the words of
a shuffled sentence get what they got before, and two occurrences of a word the same. A causal mask
alone breaks that. Equivariant is not invariant: what each word gets moves along with it.
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
    """Changes of the output when a text is shuffled, with positions and with them switched off."""

    tokens: list[str]
    order: list[int]  # order[n] is the token that comes to stand at place n
    change: list[float]  # change of each token's output, as a share, in the order of `tokens`
    without: list[float]  # the same without positions
    twins: tuple[int, int] | None  # the same token twice
    apart: float | None  # difference between the outputs of the twins, as a share
    apart_without: float | None


@torch.no_grad()
def changes(read: Read, x: Tensor, order: Tensor) -> list[float]:
    """Change of each token of `x` (1, token, …) when token `order[n]` comes to stand at place n."""
    before, after = read(x), read(x[:, order])
    change = torch.empty_like(before)
    change[:, order] = after - before[:, order]
    return (change.norm(dim=-1) / before.norm(dim=-1))[0].tolist()


@torch.no_grad()
def difference(read: Read, x: Tensor, i: int, j: int) -> float:
    """The difference between the outputs of tokens i and j, as a share."""
    out = read(x)
    return _share(out[:, i] - out[:, j], out[:, i])


def shuffle(layer: SelfAttention, x: Embeddings, order: Tensor, mask: Mask | None = None) -> float:
    """Change of the output when tokens of `x` (1, token, channel) move by `order` (token,)."""
    read = reader_of(layer, mask)
    before, after = read(x), read(x[:, order])
    return _share(after - before[:, order], before)


def duplicate(
    layer: SelfAttention, x: Embeddings, i: int, j: int, mask: Mask | None = None
) -> float:
    """Difference of the outputs at i and j, where `x` (1, token, channel) has the same vector."""
    return difference(reader_of(layer, mask), x, i, j)


def reader_of(layer: SelfAttention, mask: Mask | None = None) -> Read:
    """A reader of vectors of words, one after the other, made of one layer."""

    @torch.no_grad()
    def read(x: Tensor) -> Tensor:
        return layer(x, folded(x.shape[-2], layer.encoding.axes), mask)

    return read


def repeated(words: Sequence[str], shortest: int = 3) -> tuple[int, int] | None:
    """The first and second place of the longest word that occurs twice.

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
