"""Wall: each token sets a forget gate for each channel of each head.

    score(i, j) = scale · Σ_c q[i, c] k[j, c] exp(Pᵢ − Pⱼ)[c]        c: channel
    Pᵢ = Σ_{t ≤ i} g_t,   g_t = G (σ(W x_t + b)^(1/G) − 1)           Σ over tokens as read; G = 0.86

x is the input of the layer. g is about ln σ if a channel is kept, and at least −G, so that
forgetting needs several tokens. A head can keep some channels for long and forget others at once;
FoX lowers the score as a whole. With g = 0, scores do not depend on order; if g is the same
everywhere, this is the decay of xPos. Use it with causal attention only, because scores of keys
after the query grow. Positions are not used.

Pai et al. 2026, "Wall Attention: Length Generalization With Diagonal Gates",
blog.tilderesearch.com/blog/wall-attn; G and the initial b as in the authors' release. Their layer
in flash-linear-attention has no lower bound: g = ln σ(W x + b) there.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from posenc.biases.transported_keys import (
    Chunks,
    TransportedBias,
    TransportedKeys,
    alike,
    in_chunks,
)
from posenc.compat.tracing import traced, upcast
from posenc.core.biases import content, per_query_head
from posenc.core.encoding import Encoding
from posenc.core.prepared import Prepared
from posenc.core.running_sums import CHUNK, by_head, linear, running_sum, split_chunks
from posenc.core.shapes import Bias, Embeddings, HeadPositions, Heads, Keys, Positions, Scores
from posenc.properties import decaying, norm_preserving
from posenc.properties.card import RELATIVE, Card, paper
from posenc.support.arguments import layer_sizes

MOST = 0.86  # G, the largest decay of one token, as a natural logarithm
CEILING = MOST * CHUNK / 2  # bound of P over half a chunk: float32 represents exp(± 27.5) well
OPEN = 8.0  # initial b: ln σ(8) = −0.0003


class Decays(
    TransportedKeys, Prepared, NamedTuple("Decays", [("total", Tensor), ("past", Tensor)])
):
    """Running sums P of the logarithms of gates, (batch, head, token, channel).

    In a cache, `past` holds keys kⱼ exp(P_s − Pⱼ) of the first s tokens.
    """

    def chunks(self, k: Keys, some: slice) -> Chunks:
        k = upcast(per_query_head(k[..., some, :], self.total))
        before = self.total[..., max(0, some.start - 1), None, :]
        return faded_chunks(k, k, self.total[..., some, :], before)


def faded(q: Heads, k: Keys, p: Tensor, p_key: Tensor) -> Scores:
    """Return Σ_c q[i, c] k[j, c] exp(Pᵢ − Pⱼ)[c] for all queries i and keys j.

    exp(Pᵢ − Pⱼ) = exp(Pᵢ − R) · exp(R − Pⱼ), where R is P in the middle of the chunk of j. Both
    factors are finite for every i after j; for other i the first is clamped.
    """
    # A compiler fuses the sum, so that the array with channels is never stored
    if traced():
        left = (p.unsqueeze(-2) - p_key.unsqueeze(-3)).clamp_max(CEILING).exp()
        return (q.unsqueeze(-2) * k.unsqueeze(-3) * left.to(q.dtype)).sum(-1)
    scores = [q @ k[..., :0, :].mT]
    for chunk in split_chunks(k.shape[-2]):
        p_here = p_key[..., chunk, :]
        middle = p_here[..., p_here.shape[-2] // 2, None, :]
        since, until = (p - middle).clamp_max(CEILING).exp(), (middle - p_here).exp()
        scores.append((q * since.to(q.dtype)) @ (k[..., chunk, :] * until.to(k.dtype)).mT)
    return torch.cat(scores, -1)


def faded_chunks(q: Heads, k: Keys, p: Tensor, before: Tensor | None = None) -> Chunks:
    """Return Wall's scores within chunks of tokens, and the factors of scores between chunks.

    Between chunks, R is P at the end of a chunk, so that both factors are at most 1. `before` is P
    at the token before the first; None: P at the first token.
    """
    before = p[..., :1, :] if before is None else before
    q, k, p = in_chunks(q), in_chunks(k), in_chunks(p)
    middle, end = p[..., p.shape[-2] // 2, None, :], p[..., -1:, :]
    start = torch.cat((before.unsqueeze(-3), end[..., :-1, :, :]), -3)
    fading = lambda later, earlier: (later - earlier).exp().to(q.dtype)  # noqa: E731
    own = (q * fading(p, middle)) @ (k * fading(middle, p)).mT
    return Chunks(own, q * fading(p, start), k * fading(end, p), fading(end, start))


class Wall(Encoding):
    """Decay from a gate for each token, head and channel: `Wall(512, heads=8)`.

    - `width`: channels of the layer's input
    - `heads`: query heads, a divisor of `width`

    The gates are computed from the layer's input, so use `SelfAttention` or `Block`.

    >>> Wall(512, heads=8).dim
    64
    """

    prepared = Decays
    causal = True

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.width, self.heads, self.dim = layer_sizes(width, heads)
        self.gate = linear(width, width, bias=OPEN)

    def on_hidden(self, x: Embeddings, at: Positions | HeadPositions) -> Decays:
        log = logsigmoid(by_head(x, self.heads, self.gate))
        total = running_sum(MOST * (log / MOST).expm1())
        return Decays(total, log[..., :0, :])

    def on_scores(self, q: Heads, k: Keys, q_at: Decays, k_at: Decays, scale: float) -> Bias:
        q, k = content(q, k)
        p, (p_key, past) = q_at.total, k_at

        def scores(rows: slice, keys: slice) -> Scores:
            start, settled = keys.start or 0, past.shape[-2]
            after = slice(max(start, settled), keys.stop)
            some_q, some_p = q[..., rows, :], p[..., rows, :]
            some = faded(some_q, k[..., after, :], some_p, p_key[..., after, :])
            if start < settled:
                since = (some_p - p_key[..., settled - 1, None, :]).exp().to(q.dtype)
                keys_then = past[..., start : keys.stop, :].to(q.dtype)
                some = torch.cat(((some_q * since) @ keys_then.mT, some), -1)
            return some * scale

        chunks = faded_chunks if alike(p, p_key) else None
        return TransportedBias(q, k, scale, scores, chunks, (q, k, p))


CARD = Card(
    name="Wall",
    paper=paper("pai2026wall"),
    make=lambda dim, heads, **options: Wall(dim * heads, heads, **options),
    holds=(RELATIVE - {norm_preserving}) | {decaying},
)
