"""The bias of gates that forget: the difference of running sums at the query and at the key."""

import torch
from torch import Tensor

from posenc.core.biases import ScoreBias
from posenc.core.shapes import PairBias


class DecayBias(ScoreBias):
    """The bias −|cᵢ − c'ⱼ| of running sums of the queries and of the keys, (batch, head, token)."""

    def __init__(self, q: Tensor, c: Tensor, c_key: Tensor):
        self.c, self.c_key = (x.expand(len(q), -1, -1) for x in (c, c_key))
        self.dtype = torch.promote_types(q.dtype, torch.float32)

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        between = self.c[..., rows].unsqueeze(-1) - self.c_key[..., keys].unsqueeze(-2)
        return -between.abs().to(self.dtype)

    def pair(self) -> PairBias:
        return lambda b, h, i, j: -(self.c[b, h, i] - self.c_key[b, h, j]).abs().to(self.dtype)
