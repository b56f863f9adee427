"""CoPE: how far back a key is counts the tokens that the query finds worth counting.

    score(i, j) = qᵢ · kⱼ · scale + qᵢ · e(n),   n = min( Σ_{t ≥ j} σ(qᵢ · k_t · scale), count − 1 )
    e(n) = (1 − n + ⌊n⌋) e[⌊n⌋] + (n − ⌊n⌋) e[⌊n⌋ + 1]       e: `count` learned rows; Σ over the
                                                            keys that i sees, from j on, as read

A query may count full stops, and find the last sentence, or whatever else it likes: a key that it
does not care for moves nothing further away. Positions are not looked at; what the mask hides,
ahead or in another document, is not counted. A table of zeros is no encoding at all.

Golovneva et al. 2024, "Contextual Position Encoding: Learning to Count What's Important",
arXiv:2405.18719, eq. 3-8, and the listing there: gates see scaled scores, q · e is not scaled. The
table begins with zeros in it; here with small numbers, lest it begin as no encoding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from posenc.core.arguments import channels, count, room
from posenc.core.biases import content
from posenc.core.encoding import Encoding
from posenc.core.shapes import Heads, KeyPositions, Keys, Positions
from posenc.core.tracing import in_full
from posenc.properties.card import RELATIVE, Card, Paper


def counted(gates: Tensor) -> Tensor:
    """Σ of the gates of each key and of those after it, (…, key).

    >>> counted(torch.tensor([0.5, 1.0, 0.0]))
    tensor([1.5000, 1.0000, 0.0000])
    """
    return gates.flip(-1).cumsum(-1).flip(-1)


@dataclass(frozen=True)
class Counts:
    """The bias qᵢ · e(n) of these queries and keys, whose product is multiplied by `scale`."""

    q: Heads
    k: Keys  # as many heads as q
    rows: Tensor  # e, (count, channel)
    scale: float

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        q, last = self.q[..., rows, :], len(self.rows) - 1
        with in_full(q):  # in 16 bits a count of gates could not grow past 256
            gates = (q @ self.k[..., keys, :].mT * self.scale).sigmoid()
            e = q @ self.rows.mT  # at each whole number, (batch, head, query, count)
        if seen is not None:  # no product: 0 · NaN of a key that nobody sees would be NaN
            gates = gates.masked_fill(~seen, 0)
        n = counted(gates).clamp_max(last)
        # NaN that a query does see is no index, and goes by n into its scores
        whole = n.detach().long().clamp(0, last)
        step = torch.cat((e.diff(), torch.zeros_like(e[..., :1])), -1)  # and on to the next
        return e.gather(-1, whole) + (n - whole) * step.gather(-1, whole)


class CoPE(Encoding):
    """`CoPE(64)` counts up to 63, `CoPE(64, count=16)` up to 15; all heads share the rows."""

    causal = True

    def __init__(self, dim: int, count: int = 64):
        super().__init__()
        self.dim = channels(dim)
        self.rows = nn.Parameter(torch.randn(room("a table", _rows(count), dim)) * dim**-0.5)

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> Counts:
        q, k = content(q, k)
        return Counts(q, k, self.rows.to(q.dtype), scale)

    def extra_repr(self) -> str:
        return f"{self.dim} channels, count={len(self.rows)}"


def _rows(rows: int) -> int:
    return count(rows, "count", 2)


CARD = Card(
    name="CoPE",
    paper=Paper(
        key="golovneva2024contextual",
        title="Contextual Position Encoding: Learning to Count What's Important",
        authors="Golovneva, Olga and Wang, Tianlu and Weston, Jason and Sukhbaatar, Sainbayar",
        year=2024,
        arxiv="2405.18719",
    ),
    make=lambda dim, heads, **options: CoPE(dim, **options),
    holds=RELATIVE,
)
