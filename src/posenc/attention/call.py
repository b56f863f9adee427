"""The arguments of one attention call, validated. The hooks replace q, k, v and the bias."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from posenc.attention.spacing import Strip
from posenc.core.biases import ScoreBias
from posenc.core.encoding import Encoding
from posenc.core.hooks import Placed
from posenc.core.masks import Mask
from posenc.core.shapes import Heads, Keys, Seen, Sinks, Values

Implementation = Literal["auto", "reference", "sdpa", "toeplitz", "blocks", "flex"]


class Call(NamedTuple):
    encoding: Encoding
    parts: list[Placed]  # the encoding, or those that a `Sum` is made of, with their positions
    acts_on: tuple[str, ...]  # the hooks that any of them overrides
    q: Heads
    k: Keys
    v: Values
    scale: float  # factor of q · k
    mask: Mask | Seen | None  # None: every query sees every key
    seen: Strip | None  # the pairs that the mask shows, where they are a strip
    hides: bool  # True where there may be keys that no query sees
    readable: bool  # True where values can be read: on the CPU, not traced, first gradients at most
    trains: bool
    plain: bool  # True where the weights are nothing but the softmax of the scores
    by_weight: bool  # True where the encoding adds to the output by the weights
    # The dtype of scores: at least float32; 16 bits would not even tell 1,024 from 1,025
    exact: torch.dtype
    dropout: float = 0.0  # probability with which a weight is 0
    softcap: float | None = None  # c of c · tanh(score / c)
    sinks: Sinks | None = None  # logits that have no value
    implementation: Implementation = "auto"
    bias: ScoreBias | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes (batch, head, query, key) of the scores."""
        batch, heads, tokens, _ = self.q.shape
        return batch, heads, tokens, self.k.shape[-2]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that the encoding has no part in."""
        inputs = self.q, self.k, self.v
        return inputs if self.sinks is None else (*inputs, self.sinks)

    @property
    def name(self) -> str:
        """The name of the encoding, for messages."""
        return type(self.encoding).__name__


def rows_of(tokens: int, most: int) -> list[slice]:
    """Cut so many queries into blocks of `most` at most."""
    return [slice(start, min(start + most, tokens)) for start in range(0, tokens, most)]
