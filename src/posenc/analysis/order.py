"""Does attention know the order of words? Two tests on a layer and the vectors of a real sentence.

    shuffle    | layer(shuffled x) − shuffled layer(x) | / | layer(x) |
    duplicate  | layer(x)ᵢ − layer(x)ⱼ | / | layer(x)ᵢ |,  where words i and j are the same

Both are 0 for attention without positions and mask: it is permutation-equivariant, so the words of
a shuffled sentence get what they got before, and two occurrences of a word the same.
"""

import torch
from torch import Tensor

from posenc.layer import SelfAttention
from posenc.masks import Mask
from posenc.positions import folded
from posenc.shapes import Embeddings


def shuffle(layer: SelfAttention, x: Embeddings, order: Tensor, mask: Mask | None = None) -> float:
    """`x` (1, token, channel); `order` (token,) says which token comes to stand where."""
    before, after = _run(layer, x, mask), _run(layer, x[:, order], mask)
    return _share(after - before[:, order], before)


def duplicate(
    layer: SelfAttention, x: Embeddings, i: int, j: int, mask: Mask | None = None
) -> float:
    """`x` (1, token, channel), with the same vector at tokens i and j."""
    out = _run(layer, x, mask)
    return _share(out[:, i] - out[:, j], out[:, i])


def repeated(words: list[str], shortest: int = 3) -> tuple[int, int] | None:
    """Where the longest word that occurs twice stands, first and second.

    >>> repeated("the dog chased another dog".split())
    (1, 4)
    """
    twice = [word for word in words if len(word) >= shortest and words.count(word) > 1]
    if not twice:
        return None
    word = max(twice, key=len)
    first = words.index(word)
    return first, words.index(word, first + 1)


@torch.no_grad()
def _run(layer: SelfAttention, x: Tensor, mask: Mask | None) -> Tensor:
    return layer(x, folded(x.shape[-2], layer.encoding.axes), mask)


def _share(change: Tensor, of: Tensor) -> float:
    return (change.norm() / of.norm()).item()
