"""One new token that sees all keys, in layers that share positions: torch's kernel and one row.

When decoding, the overhead of Python calls dominates. Whoever runs the layers of one pass may hold
a `Decoding` meanwhile: the row of a bias that goes by positions alone is computed in the first
layer, and serves the others.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from posenc.attention.hooks import bias_of
from posenc.attention.sdpa import one_query
from posenc.core.biases import ALL
from posenc.core.encoding import Encoding
from posenc.core.shapes import Heads, Keys, Values
from posenc.core.tracing import beyond_gradients, readable

Row = tuple[bool, Tensor | None]  # whether the kernel can serve; the row, (batch, head, 1, key)


@dataclass(frozen=True)
class Decoding:
    """One token, at `at`, and the keys, at `k_at`, during one pass through all layers."""

    encoding: Encoding
    at: Any
    k_at: Any
    rows: dict[float, Row] = field(default_factory=dict)  # by softmax scale

    def attend(self, q: Heads, k: Keys, v: Values, scale: float) -> Tensor | None:
        """Return what `attend` does, of encoded queries and keys; None where it must be called."""
        if torch.is_grad_enabled() or not readable(q, k, v) or beyond_gradients():
            return None
        row = self.rows.get(scale)
        if row is None:
            row = self.rows[scale] = self.row(q, k, v, scale)
        able, bias = row
        return one_query(q, k, v, bias, scale) if able else None

    def row(self, q: Heads, k: Keys, v: Values, scale: float) -> Row:
        """The kernel cannot serve a bias that goes by content, nor a `scale` below 0."""
        acts_on = {*self.encoding.acts_on}
        if scale <= 0 or v.shape[-1] != q.shape[-1] or acts_on - {"on_scores", "on_embeddings"}:
            return False, None
        bias = bias_of(self.encoding, q, k, self.at, self.k_at, scale)
        if bias is None:
            return True, None
        if bias.distance is None:
            return False, None
        row = bias.block(ALL, ALL, None).to(torch.promote_types(q.dtype, torch.float32))
        return True, row.expand(*q.shape[:2], 1, -1)
