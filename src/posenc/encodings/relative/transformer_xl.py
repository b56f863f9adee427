"""Transformer-XL: scores from content and from projected sinusoids of the offset, each with a bias.

    score(i, j) = ( (qᵢ + u_h) · kⱼ + (qᵢ + v_h) · W_h R(pᵢ − pⱼ) ) · scale
    R(δ) = [sin δθ₀ … sin δθ_{w/2−1}, cos δθ₀ … cos δθ_{w/2−1}]
    θⱼ = base^(−2j/w),  j = 0 … w/2 − 1     radians per token

u and v are free vectors, one for each head; W_h projects the w channels of R to those of a head.
With z = Wᵀ(q + v), the second product is by the sum formula itself a product of what is known at i
with what is known at j, so it can become w more channels of queries and keys: no table of offsets,
no skewing, and any kernel carries it, gradients and all. Over regular positions on the CPU, where w
is large, forming (q + v) · W R for each block of offsets is three times faster: `VectorBias`.

    z · R(a − b) = Σⱼ sin bθⱼ (z'ⱼ sin aθⱼ − zⱼ cos aθⱼ) + cos bθⱼ (zⱼ sin aθⱼ + z'ⱼ cos aθⱼ)
    where zⱼ and z'ⱼ belong to the sine and the cosine of θⱼ

Dai et al. 2019, "Transformer-XL", arXiv:1901.02860, §3.3: u, v and W_{k,R} by these names.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from posenc.attention.call import per_query_head
from posenc.attention.offset_vectors import VectorBias
from posenc.core.arguments import channels, query_heads, room, whole_number
from posenc.core.encoding import Encoding
from posenc.core.frequencies import for_heads, frequencies, one_each
from posenc.core.positions import own
from posenc.core.prepared import Prepared
from posenc.core.shapes import Bias, Heads, Keys, Positions
from posenc.encodings.additive.sinusoidal import waves
from posenc.properties.card import RELATIVE, Card, Paper
from posenc.rotation.table import copied


class Waves(Prepared, NamedTuple("Waves", [("sin", Tensor), ("cos", Tensor), ("pos", Tensor)])):
    """sin and cos of p·θ, each (*batch, 1 or head, token, w/2), 1: for all heads; and p itself."""

    shape = "head token channel", "head token channel", "token"


class TransformerXL(Encoding):
    """`TransformerXL(64, heads=8)` has sinusoids of 512 channels; `width` sets another number."""

    prepared = Waves

    def __init__(self, dim: int, heads: int, width: int | None = None, base: float = 10_000.0):
        super().__init__()
        self.dim, self.heads = channels(dim), query_heads(heads)
        width = dim * heads if width is None else whole_number(width, "width")
        self.freqs = frequencies(width, base)
        room("a projection", heads, dim, width)
        self.u = nn.Parameter(torch.randn(heads, 1, dim) * 0.02)
        self.v = nn.Parameter(torch.randn(heads, 1, dim) * 0.02)
        self.project = nn.Parameter(torch.randn(heads, dim, width) * width**-0.5)

    def prepare(self, pos: Positions) -> Waves:
        sin, cos = for_heads(waves(pos, self.freqs, "half")).chunk(2, -1)
        return Waves(sin, cos, own(pos))

    def on_scores(self, q: Heads, k: Keys, q_at: Waves, k_at: Waves, scale: float) -> Bias:
        one_each(q, q_at.sin)
        one_each(copied(k, k_at.sin), k_at.sin)

        def products(x: Tensor, rows: slice, keys: slice) -> Tensor:
            at = Waves(q_at.sin[..., rows, :], q_at.cos[..., rows, :], q_at.pos)
            of_sin, of_cos = self.turned(x, at)
            sin, cos = (table[..., keys, :].to(of_sin.dtype) for table in (k_at.sin, k_at.cos))
            if sin.shape[-3] != 1:  # each head stands elsewhere
                return of_sin @ per_query_head(sin, x).mT + of_cos @ per_query_head(cos, x).mT
            # All heads share the sines of the keys: one product of matrices, not one a head; and
            # (key, channel) first, which for few queries is twice as fast
            sines, cosines = (
                table.squeeze(-3) @ one.flatten(1, 2).mT
                for table, one in ((sin, of_sin), (cos, of_cos))
            )
            return (sines + cosines).mT.contiguous().unflatten(1, of_sin.shape[1:3])

        def channels(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
            wider = torch.cat((queries + self.u, *self.turned(q + self.v, q_at)), -1)
            keys = copied(keys, k_at.sin)
            position = torch.cat((k_at.sin, k_at.cos), -1).to(keys.dtype)
            position = position.expand(*keys.shape[:-1], -1)
            return wider.to(queries.dtype), torch.cat((keys, position), -1)

        return VectorBias(
            q_at.pos, k_at.pos, q, k, self.u, self.v, scale, self.vectors, products, channels
        )

    def vectors(self, offset: Tensor) -> Tensor:
        """W_h R(offset), (head, offset, channel)."""
        return waves(offset, self.freqs, "half").to(self.project.dtype) @ self.project.mT

    def turned(self, query: Tensor, at: Waves) -> tuple[Tensor, Tensor]:
        """The coefficients of sin bθ and of cos bθ, for z = Wᵀ query."""
        z, z_ = (query @ self.project.to(query.dtype)).chunk(2, -1)
        return z_ * at.sin - z * at.cos, z * at.sin + z_ * at.cos


CARD = Card(
    name="Transformer-XL",
    paper=Paper(
        key="dai2019transformer",
        title="Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context",
        authors="Dai, Zihang and Yang, Zhilin and Yang, Yiming and Carbonell, Jaime and Le, Quoc V."
        " and Salakhutdinov, Ruslan",
        year=2019,
        arxiv="1901.02860",
    ),
    make=lambda dim, heads, **options: TransformerXL(dim, heads, **options),
    holds=RELATIVE,
)
