"""The validated arguments of one attention call; later steps replace q, k, v and the bias."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from posenc.attention.spacing import DiagonalBand
from posenc.core.biases import ScoreBias
from posenc.core.encoding import Encoding
from posenc.core.hooks import Placed
from posenc.core.masks import Mask
from posenc.core.shapes import Heads, Keys, Seen, Sinks, Values

Implementation = Literal["auto", "reference", "sdpa", "toeplitz", "blocks", "flex"]


class Call(NamedTuple):
    """The arguments of one attention call, and facts derived from them."""

    encoding: Encoding
    parts: list[Placed]  # the encoding, or the parts of a `Sum`, with their positions
    acts_on: tuple[str, ...]  # the hooks that any part overrides
    q: Heads
    k: Keys
    v: Values
    scale: float  # factor of q · k
    mask: Mask | Seen | None  # None: every query sees every key
    seen: DiagonalBand | None  # the pairs that the mask shows, if they are a diagonal band
    causal: bool  # True if the mask is the causal triangle, which kernels support without a mask
    hides: bool  # True if there may be keys that no query sees
    readable: bool  # True on the CPU, without tracing, and with first gradients at most
    trains: bool  # True if any input or parameter requires a gradient
    plain: bool  # True without dropout, softcap and sinks
    by_weight: bool  # True if the encoding overrides `by_weight`
    # The dtype of scores, float32 or wider, because 1,025 is rounded to 1,024 in 16 bits
    exact: torch.dtype
    dropout: float = 0.0  # probability of setting a weight to 0
    softcap: float | None = None  # c of c · tanh(score / c)
    sinks: Sinks | None = None  # logits without a value
    implementation: Implementation = "auto"
    bias: ScoreBias | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes (batch, head, query, key) of the scores."""
        batch, heads, tokens, _ = self.q.shape
        return batch, heads, tokens, self.k.shape[-2]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors q, k, v and sinks."""
        inputs = self.q, self.k, self.v
        return inputs if self.sinks is None else (*inputs, self.sinks)

    @property
    def name(self) -> str:
        """The name of the encoding, for messages."""
        return type(self.encoding).__name__


def rows_of(tokens: int, most: int) -> list[slice]:
    """Split `tokens` queries into slices with at most `most` queries each."""
    return [slice(start, min(start + most, tokens)) for start in range(0, tokens, most)]
