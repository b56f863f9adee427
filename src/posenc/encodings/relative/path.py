"""PaTH: what a query asks is changed by every token between it and the key, on the way back to it.

    score(i, j) = kⱼᵀ H_{j+1} H_{j+2} ⋯ Hᵢ qᵢ · scale           tokens as read
    H_t = 1 − β_t w_t w_tᵀ,   w_t = W x_t / |W x_t|,   β_t = 2 σ(b · x_t + b₀)

x is what the layer reads. Where RoPE turns by the same angle at every token, here each chooses its
own direction w and what becomes of it: β = 0 leaves it, β = 1 forgets it, β = 2 mirrors it. So a
head can follow a state through a text, which no rotation that commutes can. With β = 0 everywhere
there is no encoding. Keys ahead are seen unchanged; positions are not looked at.

Yang et al. 2025, "PaTH Attention: Position Encoding via Accumulating Householder Transformations",
arXiv:2505.16381; W of rank 32 as in the authors' code, whose convolution of W x over three tokens
is left out: it would mix documents that lie in one row. Chunks as in their UT transform.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from posenc.attention.call import per_query_head
from posenc.core.arguments import count, layer_sizes, room
from posenc.core.encoding import Encoding
from posenc.core.prepared import Prepared
from posenc.core.running import Running, by_head, linear
from posenc.core.shapes import Embeddings, HeadPositions, Heads, Keys, Positions
from posenc.properties import (
    any_length,
    learned,
    length_independent,
    norm_preserving,
    order_sensitive,
    shift_invariant,
)
from posenc.properties.card import Card, Paper
from posenc.rotation.matrices import over_lower

CHUNK = 64  # tokens that are passed at a time


class Mirrors(
    Running, Prepared, NamedTuple("Mirrors", [("w", Tensor), ("beta", Tensor), ("order", Tensor)])
):
    """w, (batch, head, token, channel), β, (batch, head, token), and how many tokens were read."""

    shape = ("head token channel", "head token", "token")
    sums = ("order",)


@dataclass(frozen=True)
class Passed:
    """kᵀ (H ⋯ H − 1) q · scale, which with q · k · scale makes the score."""

    q: Heads
    k: Keys  # as many heads as q
    order: Tensor  # of the queries
    mirrors: Mirrors  # of the keys
    scale: float

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        q, order, first = self.q[..., rows, :], self.order[rows].unsqueeze(-1), keys.start or 0
        passed, found = torch.zeros_like(q), [q @ self.k[..., :0, :].mT]
        for chunk in chunks(first, self.k.shape[-2]):
            # `passed` is (H ⋯ H − 1) q of the tokens after this chunk, up to each query's own.
            k, (w, beta, read) = self.k[..., chunk, :], self.mirrors.of(chunk)
            w, beta = w.to(q.dtype), beta.unsqueeze(-2).to(q.dtype)
            # Σ_t taken_t w_t is what the mirrors of the chunk take away. One that comes before t'
            # meets what t' has left: taken_t = β_t (w_t · q − Σ_{t' > t} taken_t' w_t' · w_t).
            meets = ((q + passed) @ w.mT) * (read <= order) * beta
            one = torch.eye(w.shape[-2], dtype=w.dtype, device=w.device)
            taken = over_lower(meets, one + (w @ w.mT).tril(-1) * beta)
            # A key meets only those of the mirrors that come after it.
            found.append(passed @ k.mT - taken @ (w @ k.mT).tril(-1))
            passed = passed - taken @ w
        bias = torch.cat(found[::-1], -1) * self.scale
        return bias if keys.stop is None else bias[..., : keys.stop - first]


def chunks(first: int, tokens: int) -> list[slice]:
    """Tokens from `first` on, from the last to the first; what is traced has them in one.

    >>> chunks(10, 100)
    [slice(36, 100, None), slice(10, 36, None)]
    """
    if torch.compiler.is_compiling():
        return [slice(first, None)]
    return [slice(max(first, end - CHUNK), end) for end in range(tokens, first, -CHUNK)]


class PaTH(Encoding):
    """`PaTH(512, heads=8)`, for layers that read 512 channels."""

    prepared = Mirrors
    causal = True

    def __init__(self, width: int, heads: int, rank: int = 32):
        super().__init__()
        self.width, self.heads, self.dim = layer_sizes(width, heads)
        room("the directions", width, count(rank, "rank"))
        self.down, self.up = linear(width, rank), linear(rank, width)
        self.strength = linear(width, heads, bias=0.0)

    def on_hidden(self, x: Embeddings, at: Positions | HeadPositions) -> Mirrors:
        w = normalize(by_head(x, self.heads, self.down, self.up), dim=-1)
        beta = 2 * by_head(x, self.heads, self.strength).sigmoid().squeeze(-1)
        return Mirrors(w, beta, 1 + torch.arange(x.shape[-2], device=x.device))

    def on_scores(self, q: Heads, k: Keys, q_at: Mirrors, k_at: Mirrors, scale: float) -> Passed:
        dtype = torch.promote_types(q.dtype, torch.float32)
        k = per_query_head(k, q)
        return Passed(q.to(dtype), k.to(dtype), q_at.order, k_at, scale)

    def __repr__(self) -> str:
        return f"PaTH({self.width} channels, {self.heads} heads)"


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
    holds=frozenset(
        {shift_invariant, norm_preserving, any_length, length_independent, order_sensitive, learned}
    ),
)
