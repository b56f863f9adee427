"""PoPE: each channel keeps a length from its content, and turns by its position alone.

    score(i, j) = Σ_c σ₊(qᵢ_c) σ₊(kⱼ_c) cos((pᵢ − pⱼ) θ_c − δ_c) · scale
    θ_c = base^(−c/d),  c = 0 … d − 1, in radians per token       σ₊(x) = ln(1 + eˣ)
    δ_c ∈ [−2π, 0], in radians, learned for each head

In RoPE the angle of a pair of channels holds content and position together. Here content is a
length, never negative, and position the angle, so a head can find a word wherever it stands, or a
place whatever stands there. Each of the d channels turns, so queries and keys enter the dot product
with 2 d channels; values keep theirs, and the scale stays that of d channels.

Gopalakrishnan et al. 2025, "Decoupling the 'What' and 'Where' With Polar Coordinate Positional
Embeddings", arXiv:2509.10534; bounds and both initial values as in lucidrains/PoPE-pytorch,
PoPE_pytorch/pope.py at ee11cab (2026-01), whose default is δ = 0. There keys turn by +δ; here
queries turn by −δ, which gives the same scores and lets heads that share keys have a δ each.
"""

from math import pi

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from posenc.compat.tracing import upcast
from posenc.core.encoding import Encoding
from posenc.core.frequencies import frequencies
from posenc.core.shapes import Heads, PerHead, Positions, Wider
from posenc.properties import (
    any_length,
    bounded,
    learned,
    length_independent,
    linear_shift,
    norm_constant,
    order_sensitive,
    shift_invariant,
    unique_positions,
)
from posenc.properties.card import Card, Paper
from posenc.rotation.table import Turn, copied, turn
from posenc.support.arguments import channels, query_heads, switch


class PoPE(Encoding):
    """Lengths by content and angles by position: `PoPE(64, heads=8)`.

    - `dim`: channels of a head
    - `heads`: query heads; each learns its own δ
    - `base`: base of θ, 10,000 by default
    - `uniform`: True, the default, draws the initial δ uniformly from [−2π, 0]; False begins at 0

    >>> PoPE(64, heads=8).delta.shape
    torch.Size([8, 64])

    Gopalakrishnan et al. 2025, arXiv:2509.10534.
    """

    prepared = Turn

    def __init__(self, dim: int, heads: int, base: float = 10_000.0, uniform: bool = True):
        super().__init__()
        self.dim, self.heads, self.base = channels(dim), query_heads(heads), float(base)
        self.freqs = frequencies(2 * dim, base)  # one θ for each channel, not for each pair
        δ = (
            -2 * pi * torch.rand(heads, dim)
            if switch(uniform, "uniform")
            else torch.zeros(heads, dim)
        )
        self.delta = nn.Parameter(δ)

    def prepare(self, pos: Positions) -> Turn:
        return turn(pos, self.freqs)

    def on_queries(self, q: Heads, at: Turn) -> Wider:
        δ = upcast(self.delta).clamp(-2 * pi, 0).unsqueeze(-2)
        cos, sin = at.cos * δ.cos() + at.sin * δ.sin(), at.sin * δ.cos() - at.cos * δ.sin()
        return polar(q, cos, sin)

    def on_keys(self, k: Heads, at: Turn) -> PerHead:
        return polar(copied(k, at.cos), at.cos, at.sin)


def polar(x: Wider, cos: Tensor, sin: Tensor) -> Tensor:
    """Return σ₊(x) at these angles, in Cartesian coordinates: (…, 2 · channel)."""
    length = softplus(upcast(x))
    return torch.cat((length * cos, length * sin), -1).to(x.dtype)


CARD = Card(
    name="PoPE",
    paper=Paper(
        key="gopalakrishnan2025decoupling",
        title="Decoupling the What and Where With Polar Coordinate Positional Embeddings",
        authors="Gopalakrishnan, Anand and Csordás, Róbert and Schmidhuber, Jürgen"
        " and Mozer, Michael C.",
        year=2025,
        arxiv="2509.10534",
    ),
    make=lambda dim, heads, **options: PoPE(dim, heads, **options),
    holds=frozenset(
        {unique_positions, bounded, norm_constant, linear_shift, shift_invariant, any_length}
        | {length_independent, order_sensitive, learned}
    ),
)
