"""Find rotary pairs in the weights of queries and keys: their strength, and their layout.

    strength = √(|w|² + |w′|²)                      w, w′: the rows of a pair in W_q, or in W_k
    a(m, n) = ½ (|cos(qₘ, kₙ)| + |cos(qₙ, kₘ)|)     qₘ, kₙ: rows of one head in W_q and in W_k
    t = mean / (sd / √count) of a(m, n) − a(m, n′)  (m, n) a pair, n′ the partner of the next

At distance δ a pair adds cos(δθ)(q·k + q′·k′) + sin(δθ)(q·k′ − q′·k) to a score, so training ties
row m of W_q to row n of W_k where m and n are a pair, and no other two. a(m, n) shows that, in the
layout that is true; n′ is as near in frequency, and tied to nothing. First, the direction that
all rows of a head have most in common is removed. A layout is accepted from t = 4, of 64 pairs or
more, if the other has less than half of that: chance gives that once in 10,000.

Norms are weaker witnesses. Turning a pair's phase in q and k alike changes no score, so its two
channels should be as strong; but so are neighbouring bands, in the models that we have measured.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor
from torch.nn.functional import normalize

from posenc.core.frequencies import Layout, split

DECISIVE_T = 4.0  # the least t of a verdict
FEWEST_PAIRS = 64  # pairs that a verdict needs
MOST_PRODUCTS = 2**24  # products of rows in memory at a time
# The search for the widest direction ends after so many steps, or with so small a residual
POWER_STEPS, RESIDUAL = 20, 1e-4


@dataclass(frozen=True)
class Evidence:
    """Alignment of the pairs of each layout, compared with rows that are no pair."""

    t: dict[Layout, float]
    pairs: dict[Layout, float]  # mean a(m, n)
    others: dict[Layout, float]  # mean a(m, n′)
    count: int  # pairs of a layout, over heads and layers

    @property
    def verdict(self) -> Layout | None:
        """The layout that the weights speak for; None if for neither."""
        best, worst = sorted(self.t, key=lambda layout: self.t[layout], reverse=True)
        clear = self.t[best] >= DECISIVE_T and self.t[worst] < self.t[best] / 2
        return best if clear and self.count >= FEWEST_PAIRS else None


@torch.no_grad()
def strength(weight: Tensor, layout: Layout) -> Tensor:
    """The strength of each pair, from the rows that turn: (head, channel, input) → (head, pair)."""
    first, second = split(weight.double().norm(dim=-1), layout)
    return torch.hypot(first, second)


@torch.no_grad()
def alignment(q: Tensor, k: Tensor) -> Tensor:
    """Compute a(m, n) of each head, from rows (head, channel, input): (head, channel, channel)."""
    # Rows of q above those of k, each of length 1: (head, 2 · channel, input), and their products.
    rows = normalize(torch.cat((q, k), -2).float(), dim=-1)
    products = rows @ rows.mT
    # The products less those of the widest direction, which all rows share.
    common = widest(products)
    products = products - common @ common.mT
    # What is left of each row has another length: divide again, for cosines.
    norms = products.diagonal(dim1=-2, dim2=-1).clamp_min(1e-6).sqrt()
    cosines = (products / (norms.unsqueeze(-1) * norms.unsqueeze(-2))).abs()
    across = cosines[..., : q.shape[-2], q.shape[-2] :]
    return (across + across.mT) / 2


@torch.no_grad()
def widest(products: Tensor) -> Tensor:
    """The eigenvector of the largest eigenvalue λ, times √λ: (head, row, row) → (head, row, 1).

    Power steps find it where rows have much in common. Where they leave a residual |Pv − λv| above
    λ/10,000, the second eigenvalue is near the first, and the head is given to `eigh`.
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
    """Compare the layouts by the rows that turn, W_q and W_k of each layer: (head, channel, input).

    Where heads share a key, its rows are repeated for each.
    """
    pairs: dict[Layout, list[Tensor]] = {layout: [] for layout in get_args(Layout)}
    others: dict[Layout, list[Tensor]] = {layout: [] for layout in get_args(Layout)}
    for q, k in layers:
        # Heads of a part; each is measured by itself
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
