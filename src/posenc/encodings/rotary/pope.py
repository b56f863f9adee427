"""PoPE: each channel becomes a magnitude that depends on content and an angle from its position.

    score(i, j) = Σ_c σ₊(qᵢ_c) σ₊(kⱼ_c) cos((pᵢ − pⱼ) θ_c − δ_c) · scale
    θ_c = base^(−c/d),  c = 0 … d − 1, in radians per token       σ₊(x) = ln(1 + eˣ)
    δ_c ∈ [−2π, 0], in radians, learned for each head

In RoPE the angle of a pair of channels depends on both content and position. Here content is a
nonnegative magnitude and position is the angle, so a head can find a word at any position, or a
position with any word. Each of the d channels is rotated, so queries and keys have 2 d channels in
the dot product. Values are unchanged, and the scale is that of d channels.

Gopalakrishnan et al. 2025, "Decoupling the 'What' and 'Where' With Polar Coordinate Positional
Embeddings", arXiv:2509.10534; bounds and both initial values as in lucidrains/PoPE-pytorch,
PoPE_pytorch/pope.py at ee11cab (2026-01), whose default is δ = 0. There keys are rotated by +δ;
here queries are rotated by −δ, which gives the same scores and allows heads that share keys to have
their own δ.
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
from posenc.properties.card import Card, paper
from posenc.rotation.table import Turn, copied, turn
from posenc.support.arguments import channels, query_heads, switch


class PoPE(Encoding):
    """Magnitudes from content and angles from position: `PoPE(64, heads=8)`.

    - `dim`: channels of a head
    - `heads`: query heads; each learns its own δ
    - `base`: base of θ, 10,000 by default
    - `uniform`: True, the default, draws the initial δ uniformly from [−2π, 0]; False sets it to 0

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
    """Convert polar coordinates, length softplus(x) and an angle, to Cartesian coordinates."""
    length = softplus(upcast(x))
    return torch.cat((length * cos, length * sin), -1).to(x.dtype)


CARD = Card(
    name="PoPE",
    paper=paper("gopalakrishnan2025decoupling"),
    make=lambda dim, heads, **options: PoPE(dim, heads, **options),
    holds=frozenset(
        {unique_positions, bounded, norm_constant, linear_shift, shift_invariant, any_length}
        | {length_independent, order_sensitive, learned}
    ),
)
