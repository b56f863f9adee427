"""DeBERTa: content looks at distance, and distance looks at content, apart from content at content.

    score(i, j) = ( qᵢ · kⱼ + qᵢ · Kr_h[δ(i, j)] + kⱼ · Qr_h[δ(j, i)] ) / √(3d)
    Kr_h = P W_{k,h},  Qr_h = P W_{q,h}                 P: 2·reach learned rows of w channels
    δ(i, j) = clip(pᵢ − pⱼ + reach, 0, 2·reach − 1)     tokens

The terms are content-to-content, content-to-position ("c2p") and position-to-content ("p2c"), three
of them: hence √(3d) instead of √d, and √(2d) with one of the last two alone, `terms`. Mind δ(j, i)
in the last: the distance as the key sees it. From version 2 on P has rows for B = `buckets` either
way, distances beyond B/2 sharing them ever more coarsely:

    bucket(n) = n                                                            |n| ≤ m = ⌊B/2⌋
    bucket(n) = ±(m + min(m − 1, ⌈(m − 1) ln(|n|/m) / ln((reach − 1)/m)⌉))   beyond;  δ = bucket + B

He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", arXiv:2006.03654,
eq. 3-4; buckets as in the authors' code for "DeBERTaV3", arXiv:2111.09543. Their code, and that of
transformers, looks up δ(i, j) in the last term instead; it comes to the same when training, with
the rows mirrored, but not for their weights: see `released`. Transformers, and the authors' code
before 2023, take no minimum: from `reach` tokens ahead on they read row 0, which no text of `reach`
tokens trains; see `clamped`. One P serves all their layers: `deberta.rows = other.rows` shares it.
"""

from collections.abc import Collection, Sequence
from math import log

import torch
from torch import Tensor, nn

from posenc.core.arguments import channels, count, query_heads, room, switch, whole_number
from posenc.core.biases import per_query_head
from posenc.core.encoding import Encoding
from posenc.core.offset_biases import TableBias
from posenc.core.positions import whole
from posenc.core.shapes import Bias, Heads, KeyPositions, Keys, Positions
from posenc.properties.card import RELATIVE, Card, Paper


def bucket(offset: Tensor, buckets: int, reach: int, clamped: bool = True) -> Tensor:
    """The bucket of each offset, with its sign; the last one begins before `reach`.

    >>> bucket(torch.tensor([-600, -3, 4, 5, 100, 511]), buckets=8, reach=512).tolist()
    [-7, -3, 4, 5, 6, 7]
    """
    middle = buckets // 2
    far = offset.abs().clamp_min(middle).double()
    steps = (far / middle).log() / log((reach - 1) / middle) * (middle - 1)
    steps = steps.ceil().long()
    steps = steps.clamp_max(middle - 1) if clamped else steps
    return torch.where(offset.abs() <= middle, offset, offset.sign() * (middle + steps))


class DeBERTa(Encoding):
    """`DeBERTa(64, heads=12)`: distances up to 512 either way, rows of 768 channels.

    With `buckets`, as in versions 2 and 3: `DeBERTa(64, heads=12, buckets=256)`.

    `released=True` takes δ(i, j) in the last term too, as the weights that were released need.
    `clamped=False` takes buckets of offsets beyond `reach` as transformers does.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        reach: int = 512,
        width: int | None = None,
        released: bool = False,
        buckets: int = 0,
        terms: Sequence[str] = ("c2p", "p2c"),
        clamped: bool = True,
    ):
        super().__init__()
        listed = isinstance(terms, Collection) and not isinstance(terms, str)
        if not listed or not terms or not all(term in ("c2p", "p2c") for term in terms):
            raise ValueError(f"`terms` are 'c2p', 'p2c' or both, in a tuple, got {terms!r}.")
        self.terms = tuple(terms)
        self.dim, self.heads, self.reach = channels(dim), query_heads(heads), count(reach, "reach")
        if whole_number(buckets, "buckets") and not (2 < buckets < 2 * reach - 2):
            raise ValueError(
                f"`buckets` are for distances up to `reach`={reach}: more than 2 and fewer than"
                f" {2 * reach - 2}, got {buckets}."
            )
        width = dim * heads if width is None else channels(width, "width")
        self.released, self.clamped = switch(released, "released"), switch(clamped, "clamped")
        self.buckets, self.span = buckets, buckets or reach
        room("the rows", 2 * self.span, width)
        room("a projection", heads, width, dim)
        self.rows = nn.Parameter(torch.randn(2 * self.span, width) * 0.02)
        made = [nn.Parameter(torch.randn(heads, width, dim) * width**-0.5) for _ in range(2)]
        self.to_keys = made[0] if "c2p" in terms else None
        self.to_queries = made[1] if "p2c" in terms else None

    def delta(self, offset: Tensor) -> Tensor:
        offset = whole(offset, "DeBERTa")
        if self.buckets:
            offset = bucket(offset, self.buckets, self.reach, self.clamped)
        return offset.clamp(-self.span, self.span - 1) + self.span

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> Bias:
        of_query, of_key = self.tables(scale, q.dtype)
        back = self.delta if self.released else lambda offset: self.delta(-offset)
        keys = None if of_key is None else per_query_head(k, q)
        return TableBias(q_at, k_at, self.reach, self.delta, q, of_query, back, keys, of_key)

    def tables(self, scale: float, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Kr · scale, zeros where there is no such term, and Qr · scale; (head, row, channel)."""
        of_query, of_key = (
            None if to is None else (self.rows @ to * scale).to(dtype)
            for to in (self.to_keys, self.to_queries)
        )
        if of_query is None:
            of_query = self.rows.new_zeros(self.heads, len(self.rows), self.dim, dtype=dtype)
        return of_query, of_key

    def scale(self, dim: int) -> float:
        return ((1 + len(self.terms)) * dim) ** -0.5


CARD = Card(
    name="DeBERTa",
    paper=Paper(
        key="he2021deberta",
        title="DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
        authors="He, Pengcheng and Liu, Xiaodong and Gao, Jianfeng and Chen, Weizhu",
        year=2021,
        arxiv="2006.03654",
    ),
    used_by="DeBERTa, DeBERTa-v3",
    make=lambda dim, heads, **options: DeBERTa(dim, heads, **options),
    holds=RELATIVE,
)
