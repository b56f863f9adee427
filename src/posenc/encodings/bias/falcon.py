"""Falcon's ALiBi: slopes and positions are rounded to bfloat16, and so are their products.

    score(i, j) = (qᵢ · kⱼ + r(r(m_h) · r(pⱼ))) · scale,    r(x) = x in bfloat16: 8 bits

It adds m_h pⱼ where ALiBi takes m_h |pᵢ − pⱼ| away: under a causal mask the same after softmax, if
nothing were rounded. Rounded, neighbours far into a text become alike, and what a head sees depends
on where it stands. The weights were trained with it: for them, this is right, not ALiBi's formula.
Positions are counted from 0 at the first token that is no padding.

Almazrouei et al. 2023, "The Falcon Series of Open Language Models", arXiv:2311.16867; the rounding
is in their code and in that of transformers.
"""

import torch

from posenc.core.biases import for_query_heads, take
from posenc.core.encoding import Encoding
from posenc.core.shapes import Bias, Heads, KeyPositions, Keys, Positions
from posenc.encodings.bias.alibi import slopes


class FalconALiBi(Encoding):
    """`FalconALiBi(71)`, for causal attention; the softmax scale multiplies bias and q · k."""

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads
        self.slopes = slopes(heads).float().bfloat16()

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> Bias:
        k_at, m = for_query_heads(k_at, q.shape[1]), self.slopes.to(q.device)
        position = take(k_at.to(torch.bfloat16))
        dtype = torch.promote_types(q.dtype, torch.float32)
        return lambda b, h, i, j: (m[h] * position(b, h, j)).to(dtype) * scale + 0 * i
