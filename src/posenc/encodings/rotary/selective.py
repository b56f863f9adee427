"""Selective RoPE: each token adds to RoPE's angles a step computed from its content.

    rope(q, n)ⱼ = qⱼ · exp(i φ),   φ(n, h, j) = θⱼ ( p_n e^{b[h, j]} + Σ_{t ≤ n} (W x̂_t)[h, j] )
    θⱼ = base^(−2j/d),  j = 0 … d/2 − 1        Σ over tokens in order, n the last; p_n its position

x is the input of the layer, and x̂ is x with the channels of each head scaled to norm 1. A token can
add a large angle or none, so a head can count tokens of its choice, up to a full turn. With W = 0
and b = 0 it is RoPE. A score depends on the offset and on the tokens between, not on absolute
positions.

Movahedi et al. 2025, "Selective Rotary Position Embedding", arXiv:2511.17388; W of rank 16 and the
base as in the authors' code. Here b (optional there) multiplies the position; there each token adds
e^b, so that positions start at 1, with the same scores. There x̂ is divided by √(|x|² + 10⁻⁶). Left
out: the convolution of W x̂ over four tokens, which would mix documents in one row, and the gate.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, checked, for_heads, frequencies
from posenc.core.prepared import Prepared
from posenc.core.running_sums import RunningSums, by_head, linear, running_sum
from posenc.core.shapes import Embeddings, HeadPositions, Heads, PerHead, Positions
from posenc.properties.card import RELATIVE, Card, paper
from posenc.rotation.rotate import rotate, rotate_keys
from posenc.rotation.table import Turn
from posenc.support.arguments import count, layer_sizes


class RunningAngles(
    RunningSums,
    Prepared,
    NamedTuple(
        "RunningAngles", [("cos", Tensor), ("sin", Tensor), ("place", Tensor), ("total", Tensor)]
    ),
):
    """cos and sin of Selective RoPE's angle φ, and the two terms whose sum is φ, in float64.

    The terms are θ p e^b, from the position, and the running sum of steps. All tensors have shape
    (batch, head, token, pair).
    """

    @classmethod
    def turned(cls, place: Tensor, total: Tensor) -> "RunningAngles":
        angle = place + total
        return cls(angle.cos().float(), angle.sin().float(), place, total)

    def shift_by_last(self, more: "RunningAngles") -> "RunningAngles":
        return self.turned(more.place, super().shift_by_last(more).total)


class SelectiveRoPE(Encoding):
    """Rotation by angles summed over the tokens from key to query: `SelectiveRoPE(512, heads=8)`.

    - `width`: channels of the layer's input
    - `heads`: query heads, a divisor of `width`
    - `base`: base of θ, 500,000 by default
    - `rank`: rank of the learned projection W to steps, 16 by default
    - `layout`: "interleaved" pairs neighbouring channels, "half" channel j with j + dim / 2

    Angles are computed from the layer's input, so use `SelfAttention` or `Block`. Raises ValueError
    if `heads` does not divide `width`.

    >>> SelectiveRoPE(512, heads=8).dim
    64

    Movahedi et al. 2025, arXiv:2511.17388.
    """

    prepared = RunningAngles
    causal = True

    def __init__(
        self,
        width: int,
        heads: int,
        base: float = 500_000.0,
        rank: int = 16,
        layout: Layout = "interleaved",
    ):
        super().__init__()
        self.width, self.heads, self.dim = layer_sizes(width, heads)
        self.layout: Layout = checked(layout)
        self.freqs, self.base = frequencies(self.dim, base), float(base)
        self.down, self.up = linear(width, count(rank, "rank")), linear(rank, width // 2)
        # b, with the initial factor e^b = 1
        self.pace = nn.Parameter(torch.zeros(heads, 1, self.dim // 2))

    def on_hidden(self, x: Embeddings, at: Positions | HeadPositions) -> RunningAngles:
        said = normalize(x.unflatten(-1, (self.heads, -1)), dim=-1).flatten(-2)
        theta = self.freqs.to(x.device)
        total = running_sum(by_head(said, self.heads, self.down, self.up)) * theta
        place = for_heads(at.double().unsqueeze(-1)) * self.pace.double().exp() * theta
        return RunningAngles.turned(place.expand_as(total), total)

    def on_queries(self, q: Heads, at: RunningAngles) -> Heads:
        return rotate(q, Turn(at.cos, at.sin), self.layout)

    def on_keys(self, k: Heads, at: RunningAngles) -> PerHead:
        return rotate_keys(k, Turn(at.cos, at.sin), self.layout)


CARD = Card(
    name="Selective RoPE",
    paper=paper("movahedi2025selective"),
    make=lambda dim, heads, **options: SelectiveRoPE(dim * heads, heads, **options),
    holds=RELATIVE,
)
