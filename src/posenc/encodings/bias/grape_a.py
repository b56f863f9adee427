"""GRAPE-A: ALiBi with slopes that depend on the query and the key.

    score(i, j) = qᵢ · kⱼ · scale − |pᵢ − pⱼ| m_h ω_h ( σ₊(v_h · qᵢ / √d) + σ₊(u_h · kⱼ / √d) )
    m_h: ALiBi's slope        ω_h = σ₊(w_h) ≥ 0        u, v: unit vectors        σ₊(x) = ln(1 + eˣ)

w, u and v are learned for each head. The penalty is linear in the distance, as in ALiBi, and
shifting the whole text does not change scores. With u = v = 0 it would be ALiBi with slopes
2 ln 2 · ω_h m_h. Queries and keys are the encoded ones, so do not combine it with a rotation.

Zhang et al. 2025, "Group Representational Position Encoding", arXiv:2512.07805, eq. 4.6; slopes,
unit vectors and initial values as in model/llama-mha-grape-a-querykeygated.py at f5b539f. GRAPE-AP,
eq. 5.1, is not included: its terms p_t · R_ℓ p_ℓ rotate only one side by an absolute position ℓ, in
the paper and in llama-mha-grape-ap-v1.py, so shifting the whole text changes scores.
"""

from math import expm1, log

import torch
from torch import nn
from torch.nn.functional import normalize, softplus

from posenc.compat.tracing import upcast
from posenc.core.biases import content, for_query_heads, offset
from posenc.core.encoding import Encoding
from posenc.core.shapes import Bias, Heads, KeyPositions, Keys, Positions
from posenc.encodings.bias.alibi import slopes
from posenc.properties import decaying
from posenc.properties.card import RELATIVE, Card, paper
from posenc.support.arguments import channels, query_heads


class GRAPEA(Encoding):
    """Linear bias with slopes that depend on query and key: `GRAPEA(64, heads=8)`.

    - `dim`: channels of a head
    - `heads`: query heads; each learns ω, u and v

    >>> GRAPEA(64, heads=8)
    GRAPEA(64 channels, 8 heads)

    Zhang et al. 2025, arXiv:2512.07805, eq. 4.6.
    """

    causal = True

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.dim, self.heads = channels(dim), query_heads(heads)
        self.omega = nn.Parameter(torch.full((heads,), log(expm1(1.0))))  # ω = 1
        self.u, self.v = (nn.Parameter(torch.randn(heads, dim) * dim**-0.5) for _ in range(2))

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> Bias:
        q, k = content(q, k)
        of_query, of_key = self._gate(q, self.v), self._gate(k, self.u)
        apart = offset(q_at, for_query_heads(k_at, self.heads))

        def bias(b, h, i, j):
            return -apart(b, h, i, j).abs() * (of_query[b, h, i] + of_key[b, h, j])

        return bias

    def _gate(self, x: Heads, direction: torch.Tensor) -> torch.Tensor:
        """Return the slope of each token, computed from its query or key: (batch, head, token).

        The slope is ω m σ₊(direction · x / √d), with m the slope of ALiBi and σ₊ = softplus.
        """
        along = (x * normalize(upcast(direction), dim=-1).unsqueeze(-2)).sum(-1) * self.dim**-0.5
        slope = softplus(upcast(self.omega)) * slopes(self.heads).to(x)
        return slope.unsqueeze(-1) * softplus(along)


CARD = Card(
    name="GRAPE-A",
    paper=paper("zhang2025group"),
    make=lambda dim, heads, **options: GRAPEA(dim, heads, **options),
    holds=RELATIVE | {decaying},
)
