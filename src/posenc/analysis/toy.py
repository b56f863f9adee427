"""The toy world of pages, plots, README and notebook: words with seeded vectors, one seeded layer.

    vector("dog", 64)               the same in every page and picture
    layer(create("rope", 16, 4))    queries and keys by seeded projections, in each head the same

The explorer draws the same numbers in JavaScript (page/compute.js and page/layer.js): 32 bits of a
word (FNV-1a) seed a generator (mulberry32), whose numbers become normal ones (Box and Muller). No
library's generator is asked, for none has the same numbers everywhere.
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
WORD = "dog"  # stands at every place, where one word is shown against itself
SEED_OF_Q, SEED_OF_K = 11, 12
BITS = 0xFFFFFFFF


def seed_of(text: str) -> int:
    """32 bits that stand for a text: FNV-1a of its UTF-16, as JavaScript has it."""
    seed = 0x811C9DC5
    units = text.encode("utf-16-le")
    for low, high in zip(units[::2], units[1::2], strict=True):
        seed = (seed ^ (low | high << 8)) * 0x01000193 & BITS
    return seed


def uniform(seed: int) -> Iterator[float]:
    """Numbers from 0 to 1 by mulberry32."""
    state = seed & BITS
    while True:
        state = (state + 0x6D2B79F5) & BITS
        t = (state ^ state >> 15) * (state | 1) & BITS
        t ^= (t + ((t ^ t >> 7) * (t | 61) & BITS)) & BITS
        yield (t ^ t >> 14) / 2**32


def normals(seed: int, count: int) -> Tensor:
    """Standard normal numbers, in float64."""
    numbers = uniform(seed)
    out: list[float] = []
    while len(out) < count:
        radius, angle = math.sqrt(-2 * math.log(1 - next(numbers))), 2 * math.pi * next(numbers)
        out += radius * math.cos(angle), radius * math.sin(angle)
    return torch.tensor([*islice(out, count)], dtype=torch.float64)


def vector(word: str, width: int) -> Tensor:
    """The vector of a word."""
    return normals(seed_of(word), width)


def embedded(words: Sequence[str], width: int) -> Embeddings:
    """A text of one: (1, token, width)."""
    return torch.stack([vector(word, width) for word in words]).float().unsqueeze(0)


def layer(encoding: Encoding) -> SelfAttention:
    """Make a layer whose queries and keys are seeded projections, the same in each head."""
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
    """The scores of a layer, before any mask: (1, head, query, key)."""
    encoding, pos = made.encoding, folded(x.shape[-2], made.encoding.axes)
    at = encoding.prepare(pos)
    x = encoding.on_embeddings(x, at)
    q, k, *_ = made.project(x, at)
    return scores(encoding, q, k, pos, pos, x=x)


def added(encoding: Encoding, words: Sequence[str]) -> Scores:
    """What an encoding adds to the score of each word for each: (1, head, query, key)."""
    made = layer(encoding)
    x = embedded(words, made.width)
    with_it = scored(made, x)
    made.encoding = NoPE()
    return with_it - scored(made, x)
