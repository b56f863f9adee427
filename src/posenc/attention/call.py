"""One call of attention: what it was given, then what the hooks made of it."""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from posenc.attention.spacing import Strip
from posenc.core.biases import ScoreBias
from posenc.core.encoding import Encoding, leaves, overrides
from posenc.core.masks import Mask
from posenc.core.shapes import Heads, Keys, Seen, Sinks, Values

Implementation = Literal["auto", "reference", "sdpa", "toeplitz", "blocks", "flex"]


class Call(NamedTuple):
    encoding: Encoding
    q: Heads
    k: Keys
    v: Values
    at: Any = None
    k_at: Any = None
    scale: Any = None  # factor of q · k; None: the encoding's own
    bias: ScoreBias | None = None
    mask: Mask | Seen | None = None
    seen: Strip | None = None  # what the mask shows, where that is a strip
    trains: bool = False
    # Whether numbers may be read: on the CPU, not traced, first gradients at most
    readable: bool = False
    dropout: float = 0.0  # probability with which a weight is 0
    softcap: float | None = None  # c of c · tanh(score / c)
    sinks: Sinks | None = None  # logits that have no value
    implementation: Implementation = "auto"

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
    def by_weight(self) -> bool:
        """True where the encoding adds to the values, for which it takes the weights."""
        return any([overrides(leaf, "by_weight") for leaf in leaves(self.encoding)])

    @property
    def grouped(self) -> bool:
        """True where heads share keys: a bool, for traced the comparison would be a symbol."""
        return True if self.q.shape[1] != self.k.shape[1] else False

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that the encoding has no part in."""
        inputs = self.q, self.k, self.v
        return inputs if self.sinks is None else (*inputs, self.sinks)

    @property
    def name(self) -> str:
        """The name of the encoding, for messages."""
        return type(self.encoding).__name__


def needs_gradients(encoding: Encoding, *inputs: Tensor) -> bool:
    if not torch.is_grad_enabled():
        return False
    return any([x.requires_grad for x in inputs]) or any(
        [x.requires_grad for x in encoding.parameters()]
    )


def rows_of(tokens: int, most: int) -> list[slice]:
    """Cut so many queries into blocks of `most` at most."""
    return [slice(start, min(start + most, tokens)) for start in range(0, tokens, most)]
