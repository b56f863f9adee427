"""DeBERTa: add scores of queries and keys with learned vectors of their distance.

    score(i, j) = ( qᵢ · kⱼ + qᵢ · Kr_h[δ(i, j)] + kⱼ · Qr_h[δ(j, i)] ) / √(3d)
    Kr_h = P W_{k,h},  Qr_h = P W_{q,h}                 P: 2·reach learned rows of w channels
    δ(i, j) = clip(pᵢ − pⱼ + reach, 0, 2·reach − 1)     tokens

The terms are content-to-content, content-to-position ("c2p") and position-to-content ("p2c").
Three terms are scaled by √(3d) instead of √d; two, if `terms` has only one of the last two, by
√(2d). The last term uses δ(j, i), the distance from the key to the query. From version 2 on, P has
rows for B = `buckets` in each direction, and distances beyond B/2 share rows in growing buckets:

    bucket(n) = n                                                            |n| ≤ m = ⌊B/2⌋
    bucket(n) = ±(m + min(m − 1, ⌈(m − 1) ln(|n|/m) / ln((reach − 1)/m)⌉))   beyond;  δ = bucket + B

He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", arXiv:2006.03654,
eq. 3-4; buckets as in the authors' code for "DeBERTaV3", arXiv:2111.09543. Their code and that of
transformers use δ(i, j) in the last term too. Training then learns mirrored rows, so published
weights need `released`. Transformers, and the authors' code before 2023, have no minimum in the
formula: for keys at least `reach` tokens after the query they read row 0, which texts of `reach`
tokens never train; see `clamped`. All layers of these models share one P: set
`deberta.rows = other.rows`.
"""

from collections.abc import Callable, Collection, Sequence
from math import log

import torch
from torch import Tensor, nn

from posenc.biases.tables import TableBias
from posenc.compat.tracing import is_eager_cpu
from posenc.core.biases import FEW_QUERIES, per_query_head
from posenc.core.encoding import Encoding
from posenc.core.positions import whole
from posenc.core.shapes import Bias, Heads, KeyPositions, Keys, Positions
from posenc.properties.card import RELATIVE, Card, paper
from posenc.support.arguments import channels, count, query_heads, room, switch, whole_number

OfOffset = Callable[[Tensor], Tensor]


def bucket(offset: Tensor, buckets: int, reach: int, clamped: bool = True) -> Tensor:
    """Return the signed bucket of each offset; far from 0, buckets grow logarithmically.

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
    """Scores between content and learned vectors of distances: `DeBERTa(64, heads=12)`.

    - `dim`: channels of a head
    - `heads`: query heads
    - `reach`: distance in tokens in each direction beyond which all share a row; 512 by default
    - `width`: channels of a row; None: dim · heads
    - `released`: True uses δ(i, j) in the last term too, as the published weights need
    - `buckets`: rows in each direction, shared by far distances, as in versions 2 and 3 (256); 0,
      the default: one row per distance
    - `terms`: "c2p" (content to position), "p2c" (position to content), or both, the default
    - `clamped`: False computes buckets of offsets beyond `reach` like transformers

    Raises ValueError for other `terms`, and for `buckets` that do not fit into `reach`.

    >>> DeBERTa(64, heads=12, buckets=256).rows.shape
    torch.Size([512, 768])

    He et al. 2021, arXiv:2006.03654, eq. 3-4.
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
            raise ValueError(f"`terms` must be a tuple of 'c2p', 'p2c' or both, got {terms!r}.")
        self.terms = tuple(terms)
        self.dim, self.heads, self.reach = channels(dim), query_heads(heads), count(reach, "reach")
        if whole_number(buckets, "buckets") and not (2 < buckets < 2 * reach - 2):
            raise ValueError(
                f"`buckets` must be from 3 to {2 * reach - 3} for `reach`={reach}, or 0 to"
                f" give each distance its own vector, got {buckets}."
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
        """Return the index of each offset in the table P of learned vectors.

        - `offset`: query − key, in tokens
        """
        offset = whole(offset, "DeBERTa")
        if self.buckets:
            offset = bucket(offset, self.buckets, self.reach, self.clamped)
        return offset.clamp(-self.span, self.span - 1) + self.span

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> Bias:
        query_row, query_rows = self.needed_rows(self.delta, q_at, k_at)
        q_term, of_query = self.term(q, query_rows, self.to_keys, scale)
        if self.to_queries is None:
            return TableBias(q_at, k_at, self.reach, query_row, q_term, of_query)
        back = self.delta if self.released else lambda offset: self.delta(-offset)
        key_row, key_rows = self.needed_rows(back, q_at, k_at)
        of_key = (key_rows @ self.to_queries * scale).to(k.dtype)
        of_keys = key_row, per_query_head(k, q), of_key
        return TableBias(q_at, k_at, self.reach, query_row, q_term, of_query, of_keys)

    def needed_rows(
        self, row: OfOffset, q_at: Positions, k_at: KeyPositions
    ) -> tuple[OfOffset, Tensor]:
        """Select the rows of P that these positions need on the CPU, and all rows elsewhere.

        Returns a function from an offset to the index of its row among these rows, and the rows.

        - `row`: function from an offset to its row index in all of P
        - `q_at`, `k_at`: positions of queries and keys
        """
        if not (is_eager_cpu(q_at, k_at) and q_at.numel() and k_at.numel()):
            return row, self.rows
        (q_low, q_high), (k_low, k_high) = q_at.aminmax(), k_at.aminmax()
        ends = row(torch.stack((q_low - k_high, q_high - k_low)))
        first, last = sorted(ends.tolist())
        return lambda offset: row(offset) - first, self.rows[first : last + 1]

    def term(
        self, q: Tensor, rows: Tensor, to: Tensor | None, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Return two tensors whose product is q · (P W)ᵀ · scale.

        They are (q, P W), or (q Wᵀ, P) for few queries, which is faster.

        - `q`: queries
        - `rows`: rows of P, (row, w)
        - `to`: W, (head, w, channel); None: the term is left out, and the second factor is 0
        - `scale`: softmax scale
        """
        if to is None:
            return q, rows.new_zeros(len(rows), self.dim, dtype=q.dtype)
        if is_eager_cpu(q) and q.shape[0] * q.shape[2] <= FEW_QUERIES:
            exact = torch.promote_types(q.dtype, rows.dtype)
            return q.to(exact) @ to.mT.to(exact), rows * scale
        return q, (rows @ to * scale).to(q.dtype)

    def scale(self, dim: int) -> float:
        return super().scale((1 + len(self.terms)) * dim)


CARD = Card(
    name="DeBERTa",
    paper=paper("he2021deberta"),
    used_by="DeBERTa, DeBERTa-v3",
    make=lambda dim, heads, **options: DeBERTa(dim, heads, **options),
    holds=RELATIVE,
)
