"""Shaw relative positions: a learned key and a learned value for each offset, up to a limit.

    score(i, j) = qᵢ · (kⱼ + a[r]) · scale
    out(i) = Σⱼ weight(i, j) (vⱼ + c[r]),      r = clip(pᵢ − pⱼ, −reach, reach)

All distances beyond the reach share a row. q·a is computed once for each of the 2·reach + 1 rows
and indexed for each pair, so that no (tokens, tokens, channels) array is needed.

Shaw et al. 2018, "Self-Attention with Relative Position Representations", arXiv:1803.02155,
eq. 3-4; r there is key − query, so the order of rows is reversed.
"""

import torch
from torch import Tensor, nn

from posenc.biases.tables import TableBias
from posenc.core.biases import ALL, for_query_heads, offsets
from posenc.core.encoding import Encoding
from posenc.core.positions import whole
from posenc.core.shapes import Bias, Heads, KeyPositions, Keys, Positions
from posenc.properties.card import RELATIVE, Card, paper
from posenc.support.arguments import channels, count, room


class Shaw(Encoding):
    """Learned keys and values for each offset in −reach … reach: `Shaw(64)`.

    - `dim`: channels of a head
    - `reach`: distance in tokens from which on all distances share a row, 16 by default

    `relative_keys` and `relative_values` hold the rows a and c of distances −reach … reach.

    >>> Shaw(64).relative_keys.shape
    torch.Size([33, 64])

    Shaw et al. 2018, arXiv:1803.02155, eq. 3 and 4.
    """

    def __init__(self, dim: int, reach: int = 16):
        super().__init__()
        self.dim = channels(dim)
        self.reach = count(reach, "reach", 0)
        room("a table", 2 * reach + 1, dim)
        self.relative_keys = nn.Parameter(torch.randn(2 * reach + 1, dim) * dim**-0.5)
        self.relative_values = nn.Parameter(torch.randn(2 * reach + 1, dim) * dim**-0.5)

    def row(self, distance: Tensor) -> Tensor:
        """Return the index of each offset in the tables of learned keys and values.

        - `distance`: offset in tokens, query − key
        """
        return whole(distance, "Shaw").clamp(-self.reach, self.reach) + self.reach

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> Bias:
        return TableBias(
            q_at, k_at, self.reach, self.row, q, self.relative_keys,
            value_table=self.relative_values, scale=scale,
        )  # fmt: skip

    def by_weight(
        self, weights: Tensor, q_at: Positions, k_at: KeyPositions, rows: slice
    ) -> Tensor:
        k_at = for_query_heads(k_at, weights.shape[1])
        row = self.row(offsets(q_at, k_at, rows, ALL))
        mass = weights.new_zeros(*weights.shape[:-1], len(self.relative_values))
        mass = mass.scatter_add(-1, row.expand(weights.shape), weights)
        return mass @ self.relative_values.to(mass.dtype)


CARD = Card(
    name="Shaw",
    paper=paper("shaw2018self"),
    used_by="W2v-BERT 2.0",
    make=lambda dim, heads, **options: Shaw(dim, **options),
    holds=RELATIVE,
)
