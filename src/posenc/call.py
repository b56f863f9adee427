"""One call of attention, after the hooks: what every path computes from."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posenc.distance import ByVector
from posenc.encoding import Encoding
from posenc.masks import Mask
from posenc.shapes import Bias, Heads, Keys, Seen, Values


@dataclass(frozen=True)
class Call:
    encoding: Encoding
    q: Heads
    k: Keys
    v: Values
    at: Any
    k_at: Any
    scale: float
    bias: Bias | ByVector | None = None
    mask: Mask | Seen | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(batch, head, query, key)"""
        batch, heads, tokens, _ = self.q.shape
        return batch, heads, tokens, self.k.shape[-2]

    @property
    def on_values(self) -> bool:
        return "on_values" in self.encoding.acts_on

    @property
    def exact(self) -> torch.dtype:
        """Of scores: at least float32; 16 bits would not even tell 1,024 from 1,025."""
        return torch.promote_types(self.q.dtype, torch.float32)

    @property
    def grouped(self) -> bool:
        """Not the comparison itself: traced, that is a symbol, which the kernels do not take."""
        return True if self.q.shape[1] != self.k.shape[1] else False

    @property
    def trains(self) -> bool:
        learned = (self.q, self.k, self.v, *self.encoding.parameters())
        return torch.is_grad_enabled() and any(x.requires_grad for x in learned)


def per_query_head(x: Tensor, q: Tensor) -> Tensor:
    """Grouped heads of keys or values, one for each head of the queries."""
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)
