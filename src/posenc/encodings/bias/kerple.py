"""KERPLE: lower the score with distance by a logarithm or a power, learned for each head.

    score(i, j) = qᵢ · kⱼ · scale − p_h ln(1 + a_h |pᵢ − pⱼ|)        log,    p, a > 0
    score(i, j) = qᵢ · kⱼ · scale − a_h |pᵢ − pⱼ|^p_h                power,  a > 0, 0 < p ≤ 2

Both are conditionally positive definite kernels of the distance, which is the reason for the bounds
on p. ALiBi is the power with p = 1 and fixed a. With the logarithm, weights fall like a power of
the distance, (1 + a δ)^−p, so far tokens keep a noticeable weight.

Chi et al. 2022, "KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation",
arXiv:2205.09921, eq. 8 and 9 (r₁ is p and r₂ is a of the logarithm); initial values and the lower
bound of 0.01 as in the authors' code. That code overwrites parameters below the bound; here they
are clamped when used.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from posenc.biases.distance import DistanceBias
from posenc.compat.tracing import upcast
from posenc.core.encoding import Encoding
from posenc.core.shapes import Bias, Heads, KeyPositions, Keys, Positions
from posenc.properties import (
    any_length,
    decaying,
    learned,
    length_independent,
    norm_preserving,
    order_sensitive,
    shift_invariant,
    symmetric,
)
from posenc.properties.card import Card, paper
from posenc.support.arguments import brief, query_heads

LEAST = 0.01


def bounded(x: Tensor, most: float = float("inf")) -> Tensor:
    """Clamp x to LEAST … `most`, but keep its gradient, so that training can leave the limits."""
    return x + (x.clamp(LEAST, most) - x).detach()


class Kerple(Encoding):
    """Bias that falls with distance by a learned logarithm or power: `Kerple(8)`.

    - `heads`: query heads; each learns its own p and a
    - `curve`: "log", the default, or "power"

    Raises ValueError for any other `curve`.

    >>> Kerple(8, curve="power")
    Kerple(8 heads, curve='power')

    Chi et al. 2022, arXiv:2205.09921, eq. 8 and 9.
    """

    def __init__(self, heads: int, curve: Literal["log", "power"] = "log"):
        super().__init__()
        if not isinstance(curve, str) or curve not in ("log", "power"):
            raise ValueError(f"`curve` must be 'log' or 'power', got {brief(curve)}.")
        self.heads, self.curve = query_heads(heads), curve
        self.p = nn.Parameter(2 * torch.rand(heads))
        self.a = nn.Parameter(torch.rand(heads))

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> Bias:
        return DistanceBias(self.of_distance, q, q_at, k_at)

    def of_distance(self, h: Tensor, δ: Tensor) -> Tensor:
        """Return the bias at an offset, in logits.

        - `h`, `δ`: head, and offset in tokens, query − key
        """
        a, p = upcast(self.a[h]), upcast(self.p[h])
        if self.curve == "log":
            return -bounded(p) * (bounded(a) * δ.abs()).log1p()
        # ONNX rounds a power to the dtype of its base, so convert δ to the dtype of a
        δ = δ.to(torch.promote_types(δ.dtype, a.dtype))
        # The second derivative of 0ᵖ in p is NaN in torch, from 0ᵖ ln² 0
        apart = δ != 0
        return torch.where(apart, -bounded(a) * δ.abs().where(apart, 1) ** bounded(p, 2.0), 0)


CARD = Card(
    name="KERPLE",
    paper=paper("chi2022kerple"),
    make=lambda dim, heads, **options: Kerple(heads, **options),
    holds=frozenset(
        {shift_invariant, symmetric, decaying, norm_preserving, any_length, length_independent}
        | {order_sensitive, learned}
    ),
)
