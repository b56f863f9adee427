"""PaTH: what a query asks is changed by every token between it and the key, on the way back to it.

    score(i, j) = kⱼᵀ H_{j+1} H_{j+2} ⋯ Hᵢ qᵢ · scale           tokens as read
    H_t = 1 − β_t w_t w_tᵀ,   w_t = W x_t / |W x_t|,   β_t = 2 σ(b · x_t + b₀)

x is what the layer reads. Where RoPE turns by the same angle at every token, here each chooses its
own direction w and what becomes of it: β = 0 leaves it, β = 1 forgets it, β = 2 mirrors it. So a
head can follow a state through a text, which no rotation that commutes can. With β = 0 everywhere
there is no encoding. Keys ahead are seen unchanged; positions are not looked at.

Yang et al. 2025, "PaTH Attention: Position Encoding via Accumulating Householder Transformations",
arXiv:2505.16381; W of rank 32 as in the authors' code, whose convolution of W x over three tokens
is left out: it would mix documents that lie in one row. Where heads share keys, w and β there are
those of the keys' heads, and W has full rank; here each head of the queries has its own. It divides
W x by √(|W x|² + 10⁻⁶), so that a mirror of a W x near 0 is weaker.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from posenc.biases.carried import CarriedBias, Carrying, Chunks, alike
from posenc.compat.tracing import upcast
from posenc.core.biases import content, per_query_head
from posenc.core.encoding import Encoding
from posenc.core.prepared import Prepared
from posenc.core.running_sums import by_head, linear
from posenc.core.shapes import Bias, Embeddings, HeadPositions, Heads, Keys, Positions, Scores
from posenc.properties import norm_preserving
from posenc.properties.card import RELATIVE, Card, Paper
from posenc.rotation.householder import mirrored, mirrored_chunks
from posenc.support.arguments import count, layer_sizes


class Mirrors(
    Carrying,
    Prepared,
    NamedTuple("Mirrors", [("w", Tensor), ("beta", Tensor), ("order", Tensor), ("past", Tensor)]),
):
    """w, (batch, head, token, channel), β, (batch, head, token), and how many tokens were read.

    In a cache, `past` are keys kⱼᵀ H_{j+1} ⋯ H_s of the first s tokens.
    """

    shape = ("head token channel", "head token", "token", "head token channel")
    sums = ("order",)

    def chunks(self, k: Keys, some: slice) -> Chunks:
        k = upcast(per_query_head(k[..., some, :], self.w))
        w, beta = self.w[..., some, :].to(k.dtype), self.beta[..., some].to(k.dtype)
        return mirrored_chunks(k, k, w, beta)


class PaTH(Encoding):
    """Products of reflections between query and key, which each token sets: `PaTH(512, heads=8)`.

    - `width`: channels that the layer reads
    - `heads`: query heads, a divisor of `width`
    - `rank`: rank of the projection to the reflections' vectors, 32 by default

    It reads the layer's input, so use it in `SelfAttention` or `Block`.

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
            # Tokens beyond these keys are mirrors too
            after = slice(max(start, settled), None)
            some, back = mirrored(
                q[..., rows, :], k[..., after, :], order[rows],
                w[..., after, :], beta[..., after], read[after],
            )  # fmt: skip
            if start < settled:
                some = torch.cat((back @ past[..., start:, :].to(q.dtype).mT, some), -1)
            return some[..., : k[..., keys, :].shape[-2]] * scale

        chunks = mirrored_chunks if alike(order, read) else None
        return CarriedBias(q, k, scale, scores, chunks, (q, k, w, beta))


CARD = Card(
    name="PaTH",
    paper=Paper(
        key="yang2025path",
        title="PaTH Attention: Position Encoding via Accumulating Householder Transformations",
        authors="Yang, Songlin and Shen, Yikang and Wen, Kaiyue and Tan, Shawn and Mishra, Mayank"
        " and Ren, Liliang and Panda, Rameswar and Kim, Yoon",
        year=2025,
        arxiv="2505.16381",
    ),
    make=lambda dim, heads, **options: PaTH(dim * heads, heads, **options),
    holds=RELATIVE - {norm_preserving},
)
