"""Falcon's ALiBi: ALiBi with slopes, positions and their products rounded to bfloat16.

    score(i, j) = (qᵢ · kⱼ + r(r(m_h) · r(pⱼ))) · scale,    r(x) = x in bfloat16: 8 bits

It adds m_h pⱼ, and ALiBi subtracts m_h |pᵢ − pⱼ|. Without rounding, both have the same softmax
under a causal mask. With rounding, neighbouring tokens far into a text have the same bias, and
weights depend on absolute positions. The models were trained this way, so their weights need this
formula rather than ALiBi's. Positions count from 0 at the first token that is not padding.

Almazrouei et al. 2023, "The Falcon Series of Open Language Models", arXiv:2311.16867; the rounding
is in their code and in that of transformers.
"""

import torch

from posenc.core.biases import for_query_heads, take
from posenc.core.encoding import Encoding
from posenc.core.shapes import Bias, Heads, KeyPositions, Keys, Positions
from posenc.encodings.bias.alibi import slopes


class FalconALiBi(Encoding):
    """Rounded ALiBi of Falcon: `FalconALiBi(71)`, for causal attention.

    - `heads`: query heads

    The softmax scale multiplies both the bias and q · k.
    """

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
