"""Inkling: each token mixes a few learned profiles into its own bias for each distance.

    score(i, j) = τ(pᵢ) (qᵢ · kⱼ · scale + rᵢ · b[pᵢ − pⱼ]),   second term for 0 ≤ pᵢ − pⱼ < reach
    rᵢ = W xᵢ,    b[δ]: a column of the bank, a learned matrix (rank, reach) for all heads
    τ(p) = 1 + strength · ln(max(1, (p + 1) / floor))            p: position, in tokens

x is the input of the layer, and r has `rank` numbers for each head. A row of the bank is a profile
over distances, such as "the token before" or "the last hundred"; a token chooses its mixture. Keys
at `reach` or farther differ by content alone. Beyond `floor` tokens, τ keeps the softmax sharp.

Thinking Machines 2026, "Inkling", huggingface.co/blog/thinkingmachines-inkling; as in transformers
5.23, models/inkling/modeling_inkling.py, `InklingRelativeLogits` and `InklingAttention`, where
queries and keys are normalised, and layers with a window have its length as `reach` and no τ. Left
out: Inkling 2 scales r and limits its length. τ is a form of scalable softmax, Nakanishi 2025,
arXiv:2501.19399.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from posenc.biases.tables import TableBias
from posenc.core.encoding import Encoding
from posenc.core.positions import whole
from posenc.core.prepared import Prepared
from posenc.core.running_sums import by_head, linear
from posenc.core.shapes import Bias, Embeddings, HeadPositions, Heads, Keys, Positions
from posenc.properties.card import RELATIVE, Card, paper
from posenc.support.arguments import count, layer_sizes, number, positive, room


class Mixtures(Prepared, NamedTuple("Mixtures", [("pos", Tensor), ("shares", Tensor)])):
    """Positions, and the weights r with which each token mixes the learned bias profiles."""

    shape = ("head token", "head token channel")


class Inkling(Encoding):
    """Bias for each distance, mixed from learned profiles: `Inkling(512, heads=8)`.

    - `width`: channels of the layer's input
    - `heads`: query heads, a divisor of `width`; each has its own mixture
    - `rank`: profiles in the bank, 16 by default
    - `reach`: distance in tokens from which on the bias is 0, 1,024 by default
    - `floor`: position beyond which queries grow; None, the default: they do not
    - `strength`: growth of queries beyond `floor`, 0.1 by default

    Mixtures are computed from the layer's input, so use `SelfAttention` or `Block`. `bank` holds
    the profiles, (rank, reach).

    >>> Inkling(512, heads=8).bank.shape
    torch.Size([16, 1024])
    """

    prepared = Mixtures
    causal = True

    def __init__(
        self,
        width: int,
        heads: int,
        rank: int = 16,
        reach: int = 1024,
        floor: float | None = None,
        strength: float = 0.1,
    ):
        super().__init__()
        self.width, self.heads, self.dim = layer_sizes(width, heads)
        self.reach, self.strength = count(reach, "reach"), number(strength, "strength")
        self.floor = floor if floor is None else positive(floor, "floor")
        self.mix = linear(width, heads * count(rank, "rank"))
        self.bank = nn.Parameter(0.02 * torch.randn(room("a bank", rank, reach)))

    def on_hidden(self, x: Embeddings, at: Positions | HeadPositions) -> Mixtures:
        return Mixtures(whole(at, "Inkling"), by_head(x, self.heads, self.mix))

    def on_queries(self, q: Heads, at: Mixtures) -> Heads:
        return q if self.floor is None else (q * self._growth(at.pos)).to(q.dtype)

    def on_scores(self, q: Heads, k: Keys, q_at: Mixtures, k_at: Mixtures, scale: float) -> Bias:
        shares = q_at.shares.expand(len(q), -1, -1, -1)
        if self.floor is not None:
            shares = shares * self._growth(q_at.pos)
        # A row of zeros for distances without a bias
        profiles = nn.functional.pad(self.bank.mT, (0, 0, 0, 1)).to(shares.dtype)
        return TableBias(q_at.pos, k_at.pos, self.reach, self.row, shares, profiles)

    def row(self, distance: Tensor) -> Tensor:
        """Return the index of each offset in the learned profiles.

        Offsets without a bias get the index `reach`.

        - `distance`: offset in tokens, query − key
        """
        within = (distance >= 0) & (distance < self.reach)
        return torch.where(within, distance, self.reach)

    def _growth(self, pos: Tensor) -> Tensor:
        """Return the factor τ that multiplies each query, (batch or 1, head or 1, token, 1)."""
        beyond = ((pos + 1).double() / (self.floor or 1.0)).clamp_min(1).log()
        return (1 + self.strength * beyond).float().unsqueeze(-1)


CARD = Card(
    name="Inkling",
    paper=paper("thinking2026inkling"),
    used_by="Inkling",
    make=lambda dim, heads, **options: Inkling(dim * heads, heads, **options),
    holds=RELATIVE,
)
