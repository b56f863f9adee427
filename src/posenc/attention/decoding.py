"""Attention of one new token that sees all keys: torch's kernel, with one row of a bias at most.

A step of decoding costs what is called from Python, layer by layer. The row of the bias goes by
positions alone, so it is computed in the first layer, and serves all that share its positions.
"""

from dataclasses import dataclass, field
from functools import partial
from operator import is_
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.attention.call import Call
from posenc.core.biases import ALL, ScoreBias, as_bias
from posenc.core.cache import Version, cached_with, unchanged, version_of
from posenc.core.encoding import Encoding
from posenc.core.masks import Mask
from posenc.core.shapes import Heads, Keys, Seen, Values
from posenc.core.sum import leaves
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


@dataclass
class Step:
    """A token and the keys that it sees, all of them, as layers meet them that share positions.

    From the third call on it is that of the kernel, as long as the weights that the row was
    computed from are what they were; all checks have been passed.
    """

    scale: float
    calls: int = 0
    able: bool = False
    bias: ScoreBias | None = None
    row: Tensor | None = None
    made_of: tuple[Any, ...] = ()
    versions: list[Version] = field(default_factory=list)

    def attend(self, q: Heads, k: Keys, v: Values) -> Tensor | None:
        if not self.able:
            return None
        if self.bias is not None:
            now = self.bias.sources() or ()
            same = len(now) == len(self.made_of) and all(map(is_, now, self.made_of))
            if not same or not unchanged(self.versions):
                return None
        grouped = q.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(
            q, k, v, self.row, scale=self.scale, enable_gqa=grouped
        )

    def learn(self, call: Call, q: Heads, k: Keys, v: Values) -> None:
        """Compute the row of a call that has passed all checks, if the kernel is all there is."""
        self.calls, self.able = self.calls + 1, False
        if self.calls < 2:  # in a cache of keys, the positions are each layer's own
            return
        bias, acts_on = call.bias, call.encoding.acts_on
        if acts_on != (() if bias is None else ("on_scores",)) or call.scale != self.scale:
            return
        if not (call.q is q and call.k is k and call.v is v and q.shape[-1] == v.shape[-1]):
            return
        all_seen = call.mask is None or (call.seen is not None and call.seen.is_all)
        sources = () if bias is None else bias.sources()
        if sources is None or not all_seen or not min(call.shape) or not call.looks:
            return
        versions = [version_of(x) for x in sources if isinstance(x, Tensor)]
        if bias is not None and None not in versions:
            row = bias.block(ALL, ALL, None).to(call.exact)
            self.row, self.bias, self.made_of = row.expand(*q.shape[:2], 1, -1), bias, sources
            self.versions = versions  # type: ignore[assignment]
        self.able = None not in versions


def step_of(
    q: Heads,
    k: Keys,
    v: Values,
    encoding: Encoding,
    at: Any,
    k_at: Any,
    mask: Mask | Seen | None,
    scale: float | None,
) -> Step | None:
    """The step that these are, kept with the positions of the keys; None where it is none."""
    if torch.is_grad_enabled() or not readable(q, k, v) or beyond_gradients():
        return None
    if not isinstance(k_at, Tensor) or k_at.is_inference() or not isinstance(encoding, Encoding):
        return None
    shape = q.shape
    if len(shape) != 4 or shape[2] != 1 or not (scale is None or type(scale) is float):
        return None
    scale = encoding.scale(shape[3]) if scale is None else scale
    made_of = encoding, *leaves(encoding), at, k_at, mask
    of_mask = (mask.made_of or ()) if isinstance(mask, Mask) else ()
    what = "step", scale, shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype
    return cached_with(k_at, what, (*made_of, *of_mask), partial(Step, scale))
