"""Find rotary pairs in the weights of queries and keys: their strength, and their layout.

    strength = √(|w|² + |w′|²)                      w, w′: the rows of a pair in W_q, or in W_k
    a(m, n) = ½ (|cos(qₘ, kₙ)| + |cos(qₙ, kₘ)|)     qₘ, kₙ: rows of one head in W_q and in W_k
    t = mean / (sd / √count) of a(m, n) − a(m, n′)  (m, n) a pair, n′ the partner of the next

At distance δ a pair adds cos(δθ)(q·k + q′·k′) + sin(δθ)(q·k′ − q′·k) to a score, so training aligns
row m of W_q with row n of W_k if m and n are a pair, and no other two rows. a(m, n) is therefore
large in the true layout; n′ has nearly the same frequency but no alignment. First, the common
direction of all rows of a head is removed. A layout is accepted if its t is at least 4, over 64
pairs or more, and the other layout has less than half of that; by chance this happens once in
10,000.

Norms are weaker evidence. Rotating a pair equally in q and k does not change scores, so its two
channels should have equal norms; but so do neighbouring pairs in the models that we have measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from posenc.core.frequencies import Layout, split

DECISIVE_T = 4.0  # the smallest t of a verdict
FEWEST_PAIRS = 64  # pairs that a verdict needs
MOST_PRODUCTS = 2**24  # products of rows in memory at a time
# The largest number of power steps, and the largest relative residual
POWER_STEPS, RESIDUAL = 20, 1e-4


@dataclass(frozen=True)
class Evidence:
    """Alignment of query weights with key weights, for each channel layout.

    The alignment within rotary pairs is compared with that between channels of other pairs.
    """

    t: dict[Layout, float]
    pairs: dict[Layout, float]  # mean a(m, n)
    others: dict[Layout, float]  # mean a(m, n′)
    count: int  # pairs of a layout, over heads and layers

    @property
    def verdict(self) -> Layout | None:
        """The channel layout with which the model was trained; None if evidence is weak."""
        best, worst = sorted(self.t, key=lambda layout: self.t[layout], reverse=True)
        clear = self.t[best] >= DECISIVE_T and self.t[worst] < self.t[best] / 2
        return best if clear and self.count >= FEWEST_PAIRS else None


@torch.no_grad()
def strength(weight: Tensor, layout: Layout) -> Tensor:
    """Return the norm of each rotary pair's weights: (head, channel, input) → (head, pair)."""
    first, second = split(weight.double().norm(dim=-1), layout)
    return torch.hypot(first, second)


@torch.no_grad()
def alignment(q: Tensor, k: Tensor) -> Tensor:
    """Return the |cosine| of each row of the query weights with each row of the key weights.

    Shape: (head, channel, channel).

    `q` and `k` are weights (head, channel, input). The direction common to all rows is subtracted.
    """
    # Normalised rows of q and then of k, (head, 2 · channel, input), and their products
    rows = normalize(torch.cat((q, k), -2).float(), dim=-1)
    products = rows @ rows.mT
    # Subtract the direction that all rows have most in common
    common = widest(products)
    products = products - common @ common.mT
    # The remaining rows have other norms, so divide again to get cosines
    norms = products.diagonal(dim1=-2, dim2=-1).clamp_min(1e-6).sqrt()
    cosines = (products / (norms.unsqueeze(-1) * norms.unsqueeze(-2))).abs()
    across = cosines[..., : q.shape[-2], q.shape[-2] :]
    return (across + across.mT) / 2


@torch.no_grad()
def widest(products: Tensor) -> Tensor:
    """Return √λ times the eigenvector with the largest eigenvalue λ, for each matrix.

    Shapes: (head, row, row) → (head, row, 1).

    Power iteration converges fast if rows have much in common. If the residual |Pv − λv| stays
    above λ/10,000, the second eigenvalue is near the first, and `eigh` is used for the head.
    """
    start = torch.randn(products.shape[-1], 1, generator=torch.Generator().manual_seed(0))
    vector = normalize(products @ start.to(products), dim=-2)
    for _ in range(POWER_STEPS):
        vector = normalize(products @ vector, dim=-2)
    mapped = products @ vector
    size = (vector * mapped).sum(-2, keepdim=True)
    vector = vector * size.clamp_min(0).sqrt()
    residual = (mapped - size.clamp_min(0).sqrt() * vector).norm(dim=-2, keepdim=True)
    unsure = ~(residual <= size * RESIDUAL).flatten(-3)
    if unsure.any():
        sizes, vectors = torch.linalg.eigh(products[unsure])
        vector[unsure] = vectors[..., -1:] * sizes[..., -1:, None].clamp_min(0).sqrt()
    return vector


@torch.no_grad()
def evidence(layers: Iterable[tuple[Tensor, Tensor]]) -> Evidence:
    """Measure how well each layout's rotary pairs align in the weights W_q and W_k of each layer.

    Weights have shape (head, channel, input), and only the rows of rotated channels.

    If query heads share keys, the rows of W_k must be repeated for each query head.
    """
    pairs: dict[Layout, list[Tensor]] = {layout: [] for layout in get_args(Layout)}
    others: dict[Layout, list[Tensor]] = {layout: [] for layout in get_args(Layout)}
    for q, k in layers:
        # Number of heads that are computed together
        heads = max(MOST_PRODUCTS // (2 * q.shape[-2]) ** 2, 1)
        aligned_heads = [
            alignment(*q_and_k) for q_and_k in zip(q.split(heads), k.split(heads), strict=True)
        ]
        aligned = torch.cat(aligned_heads)
        for layout in get_args(Layout):
            m, n = split(torch.arange(q.shape[-2], device=q.device), layout)
            pairs[layout].append(aligned[..., m, n].flatten())
            others[layout].append(aligned[..., m, n.roll(-1)].flatten())
    if not pairs["half"]:
        nothing: dict[Layout, float] = dict.fromkeys(get_args(Layout), 0.0)
        return Evidence(nothing, nothing, nothing, 0)
    cosines = {
        layout: (torch.cat(pairs[layout]), torch.cat(others[layout])) for layout in get_args(Layout)
    }
    return Evidence(
        {layout: _t(a - b) for layout, (a, b) in cosines.items()},
        {layout: float(a.mean()) for layout, (a, _) in cosines.items()},
        {layout: float(b.mean()) for layout, (_, b) in cosines.items()},
        len(cosines["half"][0]),
    )


def _t(differences: Tensor) -> float:
    if len(differences) < 2 or not differences.std() > 0:
        return 0.0
    return float(differences.mean() / differences.std() * len(differences) ** 0.5)
