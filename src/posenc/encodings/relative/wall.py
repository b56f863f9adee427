"""Wall: each token says, for each channel of each head, how much of what was read is forgotten.

    score(i, j) = scale · Σ_c q[i, c] k[j, c] exp(Pᵢ − Pⱼ)[c]        c: channel
    Pᵢ = Σ_{t ≤ i} g_t,   g_t = G (σ(W x_t + b)^(1/G) − 1)           Σ over tokens as read; G = 0.86

x is what the layer reads; g is about ln σ where a channel is kept, and never below −G, so that it
takes a few tokens to forget all. A head may keep one thing for long and drop another at once, where
FoX lowers all of a score. With g = 0 there is no encoding; with the same g everywhere it is the
fading of xPos. For causal attention: ahead of a query, scores grow. Positions are not looked at.

Pai et al. 2026, "Wall Attention: Length Generalization With Diagonal Gates",
blog.tilderesearch.com/blog/wall-attn; G and the initial b as in the authors' code.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from posenc.attention.call import per_query_head
from posenc.core.arguments import layer_sizes, room
from posenc.core.encoding import Encoding
from posenc.core.prepared import Prepared
from posenc.core.running import Running, by_head, linear, running
from posenc.core.shapes import Embeddings, HeadPositions, Heads, Keys, Positions
from posenc.properties import (
    any_length,
    decaying,
    learned,
    length_independent,
    norm_preserving,
    order_sensitive,
    shift_invariant,
)
from posenc.properties.card import Card, Paper

MOST = 0.86  # G, in logarithms
CHUNK = 64  # keys whose decay is taken from the middle of them: exp(± 32 G) are good numbers
OPEN = 8.0  # b at first: ln σ(8) = −0.0003


class Decays(Running, Prepared, NamedTuple("Decays", [("total", Tensor)])):
    """P, (batch, head, token, channel)."""


@dataclass(frozen=True)
class Faded:
    """scale · Σ q k (exp(Pᵢ − Pⱼ) − 1), which with q · k · scale makes the score."""

    q: Heads
    k: Keys  # as many heads as q
    p: Tensor  # of the queries
    p_key: Tensor
    scale: float

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        q, p = self.q[..., rows, :], self.p[..., rows, :]
        k, p_key = self.k[..., keys, :], self.p_key[..., keys, :]
        plain = q @ k.mT
        if torch.compiler.is_compiling():  # a compiler forms the sum without the array of channels
            kept = (p.unsqueeze(-2) - p_key.unsqueeze(-3)).clamp_max(MOST * CHUNK / 2).exp()
            faded = (q.unsqueeze(-2) * k.unsqueeze(-3) * kept.to(q.dtype)).sum(-1)
        else:
            faded = in_chunks(q, k, p, p_key)
        return (faded - plain) * self.scale


def in_chunks(q: Heads, k: Keys, p: Tensor, p_key: Tensor) -> Tensor:
    """Σ_c q[i, c] k[j, c] exp(Pᵢ − Pⱼ)[c] by products of matrices, (batch, head, query, key).

    exp(Pᵢ − Pⱼ) = exp(Pᵢ − R) · exp(R − Pⱼ), where R is P in the middle of the chunk of j: both are
    numbers for every i after j, and elsewhere the first is kept from growing.
    """
    many = k.shape[-2]
    last = p_key[..., -1:, :].expand(*p_key.shape[:-2], -many % CHUNK, -1)  # to fill a chunk
    p_key, k = torch.cat((p_key, last), -2), pad(k, (0, 0, 0, -many % CHUNK))
    p_key, k = (x.unflatten(-2, (-1, CHUNK)) for x in (p_key, k))  # (…, chunk, key, channel)
    middle = p_key[..., CHUNK // 2 : CHUNK // 2 + 1, :]
    k = k * (middle - p_key).exp().to(k.dtype)
    since = p.unsqueeze(-2) - middle.transpose(-2, -3)  # (…, query, chunk, channel)
    q = q.unsqueeze(-2) * since.clamp_max(MOST * CHUNK / 2).exp().to(q.dtype)
    return torch.einsum("bhimc, bhmjc -> bhimj", q, k).flatten(-2)[..., :many]


class Wall(Encoding):
    """`Wall(512, heads=8)`, for layers that read 512 channels."""

    prepared = Decays
    causal = True

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.width, self.heads, self.dim = layer_sizes(width, heads)
        room("the gates", width, width)
        self.gate = linear(width, width, bias=OPEN)

    def on_hidden(self, x: Embeddings, at: Positions | HeadPositions) -> Decays:
        log = logsigmoid(by_head(x, self.heads, self.gate))
        return Decays(running(MOST * (log / MOST).expm1()))

    def on_scores(self, q: Heads, k: Keys, q_at: Decays, k_at: Decays, scale: float) -> Faded:
        dtype = torch.promote_types(q.dtype, torch.float32)
        k = per_query_head(k, q)
        return Faded(q.to(dtype), k.to(dtype), q_at.total, k_at.total, scale)

    def __repr__(self) -> str:
        return f"Wall({self.width} channels, {self.heads} heads)"


CARD = Card(
    name="Wall",
    paper=Paper(
        key="pai2026wall",
        title="Wall Attention: Length Generalization With Diagonal Gates",
        authors="Pai, Dhruv and Averbuch, Timor and Zhang, Ashley and Keigwin, Ben"
        " and Dewulf, Alec",
        year=2026,
        url="https://blog.tilderesearch.com/blog/wall-attn",
    ),
    make=lambda dim, heads, **options: Wall(dim * heads, heads, **options),
    holds=frozenset(
        {shift_invariant, decaying, norm_preserving, any_length, length_independent}
        | {order_sensitive, learned}
    ),
)
