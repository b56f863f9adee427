"""DeBERTa: content looks at distance, and distance looks at content, apart from content at content.

    score(i, j) = ( qᵢ · kⱼ + qᵢ · Kr_h[δ(i, j)] + kⱼ · Qr_h[δ(j, i)] ) / √(3d)
    Kr_h = P W_{k,h},  Qr_h = P W_{q,h}                 P: 2·reach learned rows of w channels
    δ(i, j) = clip(pᵢ − pⱼ + reach, 0, 2·reach − 1)     tokens

The terms are content-to-content, content-to-position and position-to-content; three of them, hence
√(3d) instead of √d. Mind δ(j, i) in the last: the distance as the key sees it.

He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", arXiv:2006.03654,
eq. 3-4. The authors' code, and transformers, look up δ(i, j) in the last term instead; it comes to
the same when training, with the rows mirrored, but not for their weights: see `released`. One P
serves all their layers: `deberta.rows = other.rows` shares it.
"""

import torch
from torch import Tensor, nn

from posenc.card import Card, Paper
from posenc.distance import offset
from posenc.encoding import Encoding
from posenc.positions import whole
from posenc.properties import (
    any_length,
    learned,
    length_independent,
    norm_preserving,
    order_sensitive,
    shift_invariant,
)
from posenc.shapes import Bias, Heads, KeyPositions, Keys, Positions


class DeBERTa(Encoding):
    """`DeBERTa(64, heads=12)`: distances up to 512 either way, rows of 768 channels.

    `released=True` takes δ(i, j) in the last term too, as the weights that were released need.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        reach: int = 512,
        width: int | None = None,
        released: bool = False,
    ):
        super().__init__()
        width = dim * heads if width is None else width
        self.dim, self.heads, self.reach, self.released = dim, heads, reach, released
        self.rows = nn.Parameter(torch.randn(2 * reach, width) * 0.02)
        self.to_keys = nn.Parameter(torch.randn(heads, width, dim) * width**-0.5)
        self.to_queries = nn.Parameter(torch.randn(heads, width, dim) * width**-0.5)

    def delta(self, offset: Tensor) -> Tensor:
        return (whole(offset, "DeBERTa") + self.reach).clamp(0, 2 * self.reach - 1)

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> Bias:
        by_query = q @ (self.rows @ self.to_keys).mT.to(q.dtype) * scale
        by_key = k @ (self.rows @ self.to_queries).mT.to(k.dtype) * scale
        ahead = offset(q_at, k_at)

        def value(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            δ = ahead(b, i, j)
            back = δ if self.released else -δ
            return by_query[b, h, i, self.delta(δ)] + by_key[b, h, j, self.delta(back)]

        return value

    def scale(self, dim: int) -> float:
        return (3 * dim) ** -0.5


CARD = Card(
    name="DeBERTa",
    paper=Paper(
        key="he2021deberta",
        title="DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
        authors="He, Pengcheng and Liu, Xiaodong and Gao, Jianfeng and Chen, Weizhu",
        year=2021,
        arxiv="2006.03654",
    ),
    make=lambda dim, heads, **options: DeBERTa(dim, heads, **options),
    holds=frozenset(
        {shift_invariant, norm_preserving, any_length, length_independent, order_sensitive, learned}
    ),
)
