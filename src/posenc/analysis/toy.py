"""Reproducible example data: random vectors of words, and a layer with random projections.

    vector("dog", 64)               the same on every page and in every picture
    layer(create("rope", 16, 4))    queries and keys with seeded projections, equal in all heads

The explorer draws the same numbers in JavaScript (page/compute.js and page/layer.js): 32 bits of a
word (FNV-1a) seed a generator (mulberry32), whose numbers are converted to normal ones (Box and
Muller). Generators of libraries are not used, because they differ between languages.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor, nn

from posenc.attention.layer import SelfAttention
from posenc.attention.scores import scores
from posenc.core.encoding import Encoding
from posenc.core.positions import folded
from posenc.core.shapes import Embeddings, Scores
from posenc.encodings.nope import NoPE

DIM, HEADS = 16, 4
WORD = "dog"  # the word at every position in figures of a single word
SEED_OF_Q, SEED_OF_K = 11, 12
BITS = 0xFFFFFFFF


def seed_of(text: str) -> int:
    """Return a 32-bit hash of a text, the same as the JavaScript of `posenc explore` computes.

    The hash is FNV-1a of the UTF-16 code units.
    """
    seed = 0x811C9DC5
    units = text.encode("utf-16-le")
    for low, high in zip(units[::2], units[1::2], strict=True):
        seed = (seed ^ (low | high << 8)) * 0x01000193 & BITS
    return seed


def uniform(seed: int) -> Iterator[float]:
    """Yield the same random numbers between 0 and 1 as the JavaScript of `posenc explore`.

    The generator is mulberry32.
    """
    state = seed & BITS
    while True:
        state = (state + 0x6D2B79F5) & BITS
        t = (state ^ state >> 15) * (state | 1) & BITS
        t ^= (t + ((t ^ t >> 7) * (t | 61) & BITS)) & BITS
        yield (t ^ t >> 14) / 2**32


def normals(seed: int, count: int) -> Tensor:
    """Return standard normal numbers in float64."""
    numbers = uniform(seed)
    out: list[float] = []
    while len(out) < count:
        radius, angle = math.sqrt(-2 * math.log(1 - next(numbers))), 2 * math.pi * next(numbers)
        out += radius * math.cos(angle), radius * math.sin(angle)
    return torch.tensor([*islice(out, count)], dtype=torch.float64)


def vector(word: str, width: int) -> Tensor:
    """Return the random vector of a word, which depends on its letters only."""
    return normals(seed_of(word), width)


def embedded(words: Sequence[str], width: int) -> Embeddings:
    """Return the vectors of words as a batch of one text, (1, token, width)."""
    return torch.stack([vector(word, width) for word in words]).float().unsqueeze(0)


def layer(encoding: Encoding) -> SelfAttention:
    """Return an attention layer whose random query and key weights are equal in all heads."""
    dim, heads = encoding.dim or DIM, encoding.heads or HEADS
    width = encoding.width or dim * heads
    with torch.random.fork_rng(devices=[]):
        made = SelfAttention(width, heads, encoding)
    for part, seed in ((made.q, SEED_OF_Q), (made.k, SEED_OF_K)):
        nn.init.zeros_(part.bias)
        columns = normals(seed, width * (width // heads)).view(width, -1) / math.sqrt(width)
        with torch.no_grad():
            part.weight.copy_(columns.T.repeat(heads, 1))
    return made


@torch.no_grad()
def scored(made: SelfAttention, x: Embeddings) -> Scores:
    """Return the scores of a layer without a mask, (1, head, query, key)."""
    encoding, pos = made.encoding, folded(x.shape[-2], made.encoding.axes)
    at = encoding.prepare(pos)
    x = encoding.on_embeddings(x, at)
    q, k, *_ = made.project(x, at)
    return scores(encoding, q, k, pos, pos, x=x)


def added(encoding: Encoding, words: Sequence[str]) -> Scores:
    """Return the scores with an encoding minus those without it, (1, head, query, key)."""
    made = layer(encoding)
    x = embedded(words, made.width)
    with_it = scored(made, x)
    made.encoding = NoPE()
    return with_it - scored(made, x)
