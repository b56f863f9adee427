"""Project groups of word vectors to a plane, before and after positions are added.

The words are frequent words of a text in groups of similar ones: the first words of groups are
dissimilar, and each is followed by the most similar words. The axes have most variance without
positions, so that a word has comparable coordinates before and after. `together` measures in all
channels how far groups stay together.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from posenc.analysis.text import Text
from posenc.core.encoding import Encoding

GROUPS, WORDS_EACH = 5, 8  # groups, words in a group
FREQUENT = 400  # most frequent words, from which groups are selected


@dataclass(frozen=True)
class Clouds:
    """Word vectors as points in a plane, before and after an encoding acts on them."""

    words: list[str]
    group: list[int]  # number of the group of each word
    position: list[int]
    before: list[list[float]]  # (word, 2)
    after: list[list[float]]  # (word, 2), by the same axes
    together: tuple[float, float]  # share of words with a nearest neighbour in their group


@torch.no_grad()
def clouds(text: Text, vectors: Tensor, encoding: Encoding, seed: int = 0) -> Clouds:
    """Project the vectors of forty words to a plane, before and after an encoding adds positions.

    The words are placed at positions 0 … 39 in random order. `vectors` (word, channel) are their
    embeddings.

    Raises ValueError if the text has too few words, or the encoding does not act on embeddings.
    """
    if "on_embeddings" not in encoding.acts_on:
        raise ValueError(
            f"`encoding` must act on embeddings, got {type(encoding).__name__}. Use Sinusoidal, for"
            " instance."
        )
    chosen, group = _groups(text, vectors)
    x = vectors[chosen].double()
    shuffle = torch.Generator().manual_seed(seed)
    pos = torch.randperm(len(chosen), generator=shuffle)
    after = torch.empty_like(x)
    # The encoding reads the words in the order of their positions
    order = pos.argsort()
    after[order] = encoding.on_embeddings(x[order].unsqueeze(0), encoding.prepare(pos[order]))[0]
    _, _, axes = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    plane = axes[:2].mT
    return Clouds(
        [text.distinct[n] for n in chosen],
        group,
        pos.tolist(),
        ((x - x.mean(0)) @ plane).tolist(),
        ((after - x.mean(0)) @ plane).tolist(),
        (_together(x, group), _together(after, group)),
    )


def _groups(text: Text, vectors: Tensor) -> tuple[list[int], list[int]]:
    """Choose groups of similar words; return the word ids and the group index of each word."""
    frequent = text.ids.bincount(minlength=len(text.distinct)).argsort(descending=True, stable=True)
    words = [n for n in frequent.tolist() if len(text.distinct[n]) > 3][:FREQUENT]
    if len(words) < GROUPS * WORDS_EACH:
        raise ValueError(
            f"`text` must have at least {GROUPS * WORDS_EACH} words of four letters or more, got"
            f" {len(words)}. Pass a longer text."
        )
    alike = normalize(vectors[words].double(), dim=-1)
    alike = alike @ alike.mT
    chosen: list[list[int]] = []
    free = torch.ones(len(words), dtype=torch.bool)
    # Similarity to the nearest first word of a group
    farthest = torch.zeros(len(words), dtype=torch.float64)
    for number in range(GROUPS):
        first = int(farthest.masked_fill(~free, 2).argmin()) if number else 0
        nearest = alike[first].masked_fill(~free, -2)
        nearest[first] = 2
        members = nearest.topk(WORDS_EACH).indices.tolist()
        free[members] = False
        chosen.append([words[n] for n in members])
        farthest = torch.maximum(farthest, alike[first]) if number else alike[first].clone()
    return [n for part in chosen for n in part], [
        g for g in range(GROUPS) for _ in range(WORDS_EACH)
    ]


def _together(x: Tensor, group: list[int]) -> float:
    apart = torch.cdist(x, x).fill_diagonal_(float("inf"))
    groups = torch.tensor(group)
    return float((groups[apart.argmin(-1)] == groups).double().mean())
