"""CoPE: measure distance by counting only the tokens that the query selects with a gate.

    score(i, j) = qᵢ · kⱼ · scale + qᵢ · e(n),   n = min( Σ_{t ≥ j} σ(qᵢ · k_t · scale), count − 1 )
    e(n) = (1 − n + ⌊n⌋) e[⌊n⌋] + (n − ⌊n⌋) e[⌊n⌋ + 1]       e: `count` learned rows; Σ over the
                                                            keys that i sees, from j on, as read

A query can count full stops, for instance, to find the last sentence; keys with a gate of 0 do not
increase the distance. Positions are not used. Masked keys, such as later tokens or other documents,
are not counted. With a table of zeros, scores do not depend on order.

Golovneva et al. 2024, "Contextual Position Encoding: Learning to Count What's Important",
arXiv:2405.18719, eq. 3-8, and the listing there: gates use scaled scores, and q · e is not scaled.
The initial table is 0 there; here it has small random numbers, so that an untrained model has
positions.
"""

import torch
from torch import nn

from posenc.biases.counts import CountBias
from posenc.core.biases import content
from posenc.core.encoding import Encoding
from posenc.core.shapes import Heads, KeyPositions, Keys, Positions
from posenc.properties.card import RELATIVE, Card, paper
from posenc.support.arguments import channels, count, room


class CoPE(Encoding):
    """Positions counted with gates that depend on the query: `CoPE(64)` counts up to 63.

    - `dim`: channels of a head
    - `count`: learned rows, 64 by default; all heads share them

    >>> CoPE(64, count=16)
    CoPE(64 channels, count=16)

    Golovneva et al. 2024, arXiv:2405.18719, eq. 3-8.
    """

    causal = True

    def __init__(self, dim: int, count: int = 64):
        super().__init__()
        self.dim = channels(dim)
        self.rows = nn.Parameter(torch.randn(room("a table", _row_count(count), dim)) * dim**-0.5)

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> CountBias:
        q, k = content(q, k)
        return CountBias(q, k, self.rows.to(q.dtype), scale)

    def extra_repr(self) -> str:
        return f"{self.dim} channels, count={len(self.rows)}"


def _row_count(rows: int) -> int:
    return count(rows, "count", 2)


CARD = Card(
    name="CoPE",
    paper=paper("golovneva2024contextual"),
    make=lambda dim, heads, **options: CoPE(dim, **options),
    holds=RELATIVE,
)
