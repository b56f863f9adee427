"""Attention of one new token that sees all keys: torch's kernel, with one row of a bias at most.

A step of decoding costs what is called from Python, layer by layer. The row of the bias goes by
positions alone, so it is computed in the first layer, and serves all that share its positions.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.core.biases import ALL, as_bias
from posenc.core.encoding import Encoding
from posenc.core.shapes import Heads, Keys, Values
from posenc.core.tracing import beyond_gradients, readable

Row = tuple[bool, Tensor | None]  # whether the kernel can serve; the row, (batch, head, 1, key)


@dataclass(frozen=True)
class Decoding:
    """One token, at `at`, and the keys, at `k_at`, in all layers that have this encoding."""

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
        if not able:
            return None
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )

    def row(self, q: Heads, k: Keys, v: Values, scale: float) -> Row:
        """The kernel cannot serve a bias that goes by content, nor a `scale` below 0."""
        acts_on = {*self.encoding.acts_on}
        if scale <= 0 or v.shape[-1] != q.shape[-1] or acts_on - {"on_scores", "on_embeddings"}:
            return False, None
        bias = as_bias(self.encoding.on_scores(q, k, self.at, self.k_at, scale), q, k)
        if bias is None:
            return True, None
        if bias.distance is None:
            return False, None
        row = bias.block(ALL, ALL, None).to(torch.promote_types(q.dtype, torch.float32))
        return True, row.expand(*q.shape[:2], 1, -1)
