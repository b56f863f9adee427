"""Decode one token through all layers, computing a shared bias once for all of them.

In decoding, the overhead of Python calls dominates. A `Decoding` object computes the row of a bias
that depends on positions only in the first layer, and reuses it in the others. It is valid for one
pass through the layers; later changes of weights do not affect it.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from posenc.attention.attend import attend
from posenc.attention.inputs import validate
from posenc.attention.sdpa import one_query
from posenc.compat.tracing import fits_cpu_kernels
from posenc.core.biases import ALL
from posenc.core.encoding import Encoding
from posenc.core.hooks import bias_of
from posenc.core.shapes import Heads, Keys, Values

Row = tuple[bool, Tensor | None]  # True if the kernel can be used; the row, (batch, head, 1, key)


@dataclass(frozen=True)
class Decoding:
    """Attention of one new token to all keys, for all layers of one forward pass.

    - `encoding`: an `Encoding`; a bias that depends on positions only is computed once
    - `at`: position of the new token, (1,), or the result of `encoding.prepare`
    - `k_at`: positions of the keys, (key,), or the result of `encoding.prepare`
    - `rows`: rows of the bias by softmax scale, computed by the first layer

    `Decoding(ALiBi(8), pos[-1:], pos).attend(q, k, v)` equals `attend(q, k, v, ALiBi(8), pos[-1:],
    pos)`, at the cost of torch's call. An object is valid for one pass; later changes of weights do
    not affect it.

    >>> import torch
    >>> from posenc import ALiBi
    >>> pos, k = torch.arange(9), torch.randn(1, 8, 9, 16)
    >>> Decoding(ALiBi(8), pos[-1:], pos).attend(k[:, :, -1:], k, k).shape
    torch.Size([1, 8, 1, 16])
    """

    encoding: Encoding
    at: Any
    k_at: Any
    rows: dict[float, Row] = field(default_factory=dict)  # rows by softmax scale

    def attend(self, q: Heads, k: Keys, v: Values, scale: float | None = None) -> Tensor:
        """Compute the same as `posenc.attend` for one query, checking arguments only once.

        - `q`: the query, (batch, head, 1, channel)
        - `k`: keys, (batch, key head, key, channel)
        - `v`: values, (batch, key head, key, value)
        - `scale`: factor of q · k; None: the scale of the encoding
        """
        scale = self.encoding.scale(q.shape[-1]) if scale is None else scale
        if not torch.is_grad_enabled() and fits_cpu_kernels(q, k, v):
            if scale not in self.rows:
                self.rows[scale] = self.row(q, k, v, scale)
            usable, row = self.rows[scale]
            if usable:
                return one_query(q, k, v, row, scale)
        return attend(q, k, v, self.encoding, self.at, self.k_at, scale=scale)

    def row(self, q: Heads, k: Keys, v: Values, scale: float) -> Row:
        """Return (True if torch's kernel supports this call, bias of the new token's scores).

        The bias is None if there is none, or if the kernel cannot be used.

        - `q`, `k`, `v`: the arguments of `attend`
        - `scale`: factor of q · k

        The kernel cannot be used for a bias that depends on content, or a `scale` below 0.
        """
        others = {*self.encoding.acts_on} - {"on_scores", "on_embeddings"}
        if others or q.shape[2] != 1 or scale <= 0 or v.shape[-1] != q.shape[-1]:
            return False, None
        call = validate(q, k, v, self.encoding, self.at, self.k_at, None, scale)
        bias = bias_of(call.parts, q, k, scale)
        if bias is None or bias.distance is None:
            return bias is None, None
        row = bias.block(ALL, ALL, None).to(call.exact)
        return True, row.expand(*q.shape[:2], 1, -1)
