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

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from posenc.core.arguments import channels, query_heads, room, whole_number
from posenc.core.biases import ALL, per_query_head
from posenc.core.encoding import Encoding
from posenc.core.frequencies import for_heads, frequencies, refuse_broadcast
from posenc.core.offset_biases import VectorBias
from posenc.core.positions import exact_copy
from posenc.core.prepared import Prepared
from posenc.core.shapes import Bias, Heads, Keys, Positions
from posenc.encodings.additive.sinusoidal import waves
from posenc.properties.card import RELATIVE, Card, Paper
from posenc.rotation.table import copied

MANY = 2048  # keys, whose table is larger than the nearest cache


class Waves(Prepared, NamedTuple("Waves", [("table", Tensor), ("pos", Tensor)])):
    """R(p), (*batch, 1 or head, token, w), 1: for all heads; and p itself."""

    shape = "head token channel", "token"


class TransformerXL(Encoding):
    """`TransformerXL(64, heads=8)` has sinusoids of 512 channels; `width` sets another number."""

    prepared = Waves

    def __init__(self, dim: int, heads: int, width: int | None = None, base: float = 10_000.0):
        super().__init__()
        self.dim, self.heads = channels(dim), query_heads(heads)
        width = dim * heads if width is None else whole_number(width, "width")
        self.freqs, self.base = frequencies(width, base), float(base)
        room("a projection", heads, dim, width)
        self.u = nn.Parameter(torch.randn(heads, 1, dim) * 0.02)
        self.v = nn.Parameter(torch.randn(heads, 1, dim) * 0.02)
        self.project = nn.Parameter(torch.randn(heads, dim, width) * width**-0.5)

    def prepare(self, pos: Positions) -> Waves:
        return Waves(for_heads(waves(pos, self.freqs, "half")), exact_copy(pos))

    def on_scores(self, q: Heads, k: Keys, q_at: Waves, k_at: Waves, scale: float) -> Bias:
        refuse_broadcast(q, q_at.table)
        refuse_broadcast(copied(k, k_at.table), k_at.table)

        def products(rows: slice, keys: slice) -> Callable[[Tensor], Tensor]:
            turn = turning(q_at.table if rows == ALL else q_at.table[..., rows, :])
            table = k_at.table if keys == ALL else k_at.table[..., keys, :]

            def of(x: Tensor) -> Tensor:
                x, to = self.turned(x, turn), table.to(x.dtype)
                if to.shape[-3] != 1:  # each head stands elsewhere
                    return x @ per_query_head(to, x).mT
                # All heads share the sines of the keys, and texts may: one product of matrices, not
                # one a head; of many keys (key, channel) first, twice as fast for few queries
                to = to.squeeze(-3)
                flat = x.flatten(0 if to.ndim == 2 else 1, 2)
                many = to.shape[-2] > MANY
                scores = (to @ flat.mT).mT.contiguous() if many else flat @ to.mT
                return scores.view(*x.shape[:3], to.shape[-2])

            return of

        def channels(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
            wider = torch.cat((queries + self.u, self.turned(q + self.v, turning(q_at.table))), -1)
            keys = copied(keys, k_at.table)
            position = k_at.table.to(keys.dtype).expand(*keys.shape[:-1], -1)
            return wider.to(queries.dtype), torch.cat((keys, position), -1)

        return VectorBias(
            q_at.pos, k_at.pos, q, k, self.u, self.v, scale, self.vectors, products, channels,
        )  # fmt: skip

    def vectors(self, offset: Tensor) -> Tensor:
        """W_h R(offset), (head, offset, channel)."""
        return waves(offset, self.freqs, "half").to(self.project.dtype) @ self.project.mT

    def turned(self, query: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """The coefficients of R(b), (batch, head, query, w), for z = Wᵀ query at a, of R(a)."""
        z = query @ self.project.to(query.dtype)
        of_sin, of_cos = z.chunk(2, -1)
        return torch.addcmul(z * turn[0], torch.cat((of_cos, of_sin), -1), turn[1])


def turning(table: Tensor) -> tuple[Tensor, Tensor]:
    """The factors of (z, z') and of (z', z) in the coefficients: (−cos, cos) and (sin, sin)."""
    sin, cos = table.chunk(2, -1)
    return torch.cat((-cos, cos), -1), torch.cat((sin, sin), -1)


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
    used_by="Transformer-XL, XLNet",
    make=lambda dim, heads, **options: TransformerXL(dim, heads, **options),
    holds=RELATIVE,
)
