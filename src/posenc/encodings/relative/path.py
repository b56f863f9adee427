"""PaTH: each token between key and query transforms the key by a Householder matrix.

    score(i, j) = kⱼᵀ H_{j+1} H_{j+2} ⋯ Hᵢ qᵢ · scale           tokens as read
    H_t = 1 − β_t w_t w_tᵀ,   w_t = W x_t / |W x_t|,   β_t = 2 σ(b · x_t + b₀)

x is the input of the layer. RoPE rotates by the same angle at every token; here each token has its
own direction w and transforms the component along w: β = 0 keeps it, β = 1 removes it, β = 2
mirrors it. A head can thus track a state through a text, which commuting rotations cannot. With
β = 0 everywhere, scores do not depend on order. Keys after the query are not transformed. Positions
are not used.

Yang et al. 2025, "PaTH Attention: Position Encoding via Accumulating Householder Transformations",
arXiv:2505.16381; W of rank 32 as in the authors' code. Three differences: their convolution of W x
over three tokens is left out, because it would mix documents packed in one row. If heads share
keys, their w and β belong to the key heads and W has full rank; here each query head has its own.
They divide W x by √(|W x|² + 10⁻⁶), so that a reflection with W x near 0 is weaker.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from posenc.biases.householder import mirrored, mirrored_chunks
from posenc.biases.transported_keys import Chunks, TransportedBias, TransportedKeys, alike
from posenc.compat.tracing import upcast
from posenc.core.biases import content, per_query_head
from posenc.core.encoding import Encoding
from posenc.core.prepared import Prepared
from posenc.core.running_sums import by_head, linear
from posenc.core.shapes import Bias, Embeddings, HeadPositions, Heads, Keys, Positions, Scores
from posenc.properties import norm_preserving
from posenc.properties.card import RELATIVE, Card, paper
from posenc.support.arguments import count, layer_sizes


class Mirrors(
    TransportedKeys,
    Prepared,
    NamedTuple("Mirrors", [("w", Tensor), ("beta", Tensor), ("order", Tensor), ("past", Tensor)]),
):
    """Vectors w and factors β of each token's Householder matrix I − β w wᵀ, and the token count.

    w is (batch, head, token, channel), and β is (batch, head, token). In a cache, `past` holds
    transformed keys kⱼᵀ H_{j+1} ⋯ H_s of the first s tokens.
    """

    shape = ("head token channel", "head token", "token", "head token channel")
    sums = ("order",)

    def chunks(self, k: Keys, some: slice) -> Chunks:
        k = upcast(per_query_head(k[..., some, :], self.w))
        w, beta = self.w[..., some, :].to(k.dtype), self.beta[..., some].to(k.dtype)
        return mirrored_chunks(k, k, w, beta)


class PaTH(Encoding):
    """Products of Householder matrices of the tokens between query and key: `PaTH(512, heads=8)`.

    - `width`: channels of the layer's input
    - `heads`: query heads, a divisor of `width`
    - `rank`: rank of the projection to w, 32 by default

    The matrices are computed from the layer's input, so use `SelfAttention` or `Block`.

    >>> PaTH(512, heads=8).dim
    64
    """

    prepared = Mirrors
    causal = True

    def __init__(self, width: int, heads: int, rank: int = 32):
        super().__init__()
        self.width, self.heads, self.dim = layer_sizes(width, heads)
        self.down, self.up = linear(width, count(rank, "rank")), linear(rank, width)
        self.strength = linear(width, heads, bias=0.0)

    def on_hidden(self, x: Embeddings, at: Positions | HeadPositions) -> Mirrors:
        w = normalize(by_head(x, self.heads, self.down, self.up), dim=-1)
        beta = 2 * by_head(x, self.heads, self.strength).sigmoid().squeeze(-1)
        read = 1 + torch.arange(x.shape[-2], device=x.device)
        return Mirrors(w, beta, read, w[..., :0, :])

    def on_scores(self, q: Heads, k: Keys, q_at: Mirrors, k_at: Mirrors, scale: float) -> Bias:
        q, k = content(q, k)
        w, beta, read, past = k_at
        w, beta, order = w.to(q.dtype), beta.to(q.dtype), q_at.order

        def scores(rows: slice, keys: slice) -> Scores:
            start, settled = keys.start or 0, past.shape[-2]
            # Tokens after these keys transform them too
            after = slice(max(start, settled), None)
            some, back = mirrored(
                q[..., rows, :], k[..., after, :], order[rows],
                w[..., after, :], beta[..., after], read[after],
            )  # fmt: skip
            if start < settled:
                some = torch.cat((back @ past[..., start:, :].to(q.dtype).mT, some), -1)
            return some[..., : k[..., keys, :].shape[-2]] * scale

        chunks = mirrored_chunks if alike(order, read) else None
        return TransportedBias(q, k, scale, scores, chunks, (q, k, w, beta))


CARD = Card(
    name="PaTH",
    paper=paper("yang2025path"),
    make=lambda dim, heads, **options: PaTH(dim * heads, heads, **options),
    holds=RELATIVE - {norm_preserving},
)
