"""The bias of ReRoPE and Self-Extend, which rotate near keys and far keys differently."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.core.biases import ScoreBias
from posenc.core.shapes import Heads, Keys


@dataclass(eq=False)
class RegionBias(ScoreBias):
    """A bias that replaces the score q · k · scale by another score in each range of offsets.

    Encodings such as ReRoPE rotate near and far pairs differently; each range is a region.

    - `q`, `k`: encoded queries and keys, (batch, head, token, channel)
    - `q_pos`, `k_pos`: their positions, (batch or 1, head or 1, token)
    - `scale`: factor of all dot products
    - `region`: function of positions, which broadcast -> index r of the region
    - `products`: for each region, the queries and keys of the score
    """

    q: Heads
    k: Keys
    q_pos: Tensor
    k_pos: Tensor
    scale: float
    region: Callable[[Tensor, Tensor], Tensor]
    products: list[tuple[Tensor, Tensor]]

    def scores(self, rows: slice, keys: slice) -> Tensor:
        region = self.region(self.q_pos[..., rows, None], self.k_pos[..., None, keys])
        scores, *others = [q[..., rows, :] @ k[..., keys, :].mT for q, k in self.products]
        for r, further in enumerate(others, 1):
            scores = torch.where(region == r, further, scores)
        return scores * self.scale

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        content = self.q[..., rows, :] @ self.k[..., keys, :].mT * self.scale
        return self.scores(rows, keys) - content
