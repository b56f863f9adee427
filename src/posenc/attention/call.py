"""One call of attention, after the hooks: what every path computes from."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.attention.spacing import Strip
from posenc.core.biases import ScoreBias
from posenc.core.encoding import Encoding
from posenc.core.masks import Mask
from posenc.core.shapes import Heads, Keys, Seen, Values
from posenc.core.tracing import readable


class Call(NamedTuple):
    encoding: Encoding
    q: Heads
    k: Keys
    v: Values
    at: Any
    k_at: Any
    scale: float
    bias: ScoreBias | None = None
    mask: Mask | Seen | None = None
    seen: Strip | None = None  # what the mask shows, where that is a strip
    by_weight: bool = False  # whether the encoding adds to the values
    trains: bool = False
    looks: bool = False  # values may be read: on the CPU, not traced, first gradients at most
    dropout: float = 0.0  # probability with which a weight is 0
    softcap: float | None = None  # c of c · tanh(score / c)
    sinks: Tensor | None = None  # (head,): logits that have no value

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes (batch, head, query, key) of the scores."""
        batch, heads, tokens, _ = self.q.shape
        return batch, heads, tokens, self.k.shape[-2]

    @property
    def exact(self) -> torch.dtype:
        """The dtype of scores: at least float32; 16 bits would not even tell 1,024 from 1,025."""
        return torch.promote_types(self.q.dtype, torch.float32)

    @property
    def plain(self) -> bool:
        """True where the weights are nothing but the softmax of the scores."""
        return self.softcap is None and self.sinks is None and not self.dropout

    @property
    def readable(self) -> bool:
        """True where torch's CPU kernel may be called as it is: nothing traced, nothing mapped."""
        return readable(self.q, self.k, self.v) and (self.sinks is None or readable(self.sinks))

    @property
    def grouped(self) -> bool:
        """True where heads share keys: a bool, for traced the comparison would be a symbol."""
        return True if self.q.shape[1] != self.k.shape[1] else False


def trains(encoding: Encoding, *inputs: Tensor) -> bool:
    if not torch.is_grad_enabled():
        return False
    return any([x.requires_grad for x in inputs]) or any(
        [x.requires_grad for x in encoding.parameters()]
    )


def per_query_head(x: Tensor, q: Tensor) -> Tensor:
    """Repeat grouped heads of keys or values, one for each head of the queries."""
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def with_same_heads(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values, for each head of the queries where the hooks gave them unlike numbers."""
    if k.shape[1] == v.shape[1]:
        return k, v
    return per_query_head(k, q), per_query_head(v, q)


def content(q: Heads, k: Keys) -> tuple[Tensor, Tensor]:
    """Queries and keys in float32 at least, head by head: what a bias of content is made of."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    return q.to(dtype), per_query_head(k, q).to(dtype)
