"""Running sums of what the input of a layer says, over the tokens as they are read.

Sums run over tokens in the order in which they lie, whatever their positions: what a query and a
key differ by is the sum of what lies between them, so documents in one row and padding on either
side need no care. They are in float64, for of a long text only differences count.
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.compat.tracing import no_autocast
from posenc.core.prepared import Prepared, slice_tokens
from posenc.core.shapes import Embeddings, Wider
from posenc.support.arguments import room

CHUNK = 64  # tokens that a product of matrices takes at a time


class RunningSums:
    """A base to put before `Prepared`: fields that are running sums go on in tokens that follow.

    class Forgotten(RunningSums, Prepared, NamedTuple("Forgotten", [("total", Tensor)])): …
    """

    __slots__ = ()
    sums: ClassVar[tuple[str, ...]] = ("total",)  # the fields that are running sums

    def append(self: Any, more: Any) -> Prepared:
        return Prepared.append(self, self.shift_by_last(more)) if self.tokens else more

    def shift_by_last(self: Any, more: Any) -> Any:
        """Add what these tokens sum up to, to the sums of `more`, the tokens that follow."""
        places = dict(zip(self._fields, self.places, strict=True))
        last = {
            name: slice_tokens(getattr(self, name), slice(-1, None), places[name])
            for name in self.sums
        }
        return more._replace(
            **{name: getattr(more, name) + so_far for name, so_far in last.items()}
        )


def running_sum(steps: Tensor) -> Tensor:
    """Sum steps (…, token, channel) up to each token, its own included, in float64.

    >>> running(torch.tensor([[1.0], [2.0], [4.0]])).flatten()
    tensor([1., 3., 7.], dtype=torch.float64)
    """
    return steps.to(torch.float32 if steps.device.type == "mps" else torch.float64).cumsum(-2)


def split_chunks(tokens: int) -> list[slice]:
    """Cut so many tokens into chunks; a compiled graph has one chunk.

    >>> chunks(100)
    [slice(0, 64, None), slice(64, 100, None)]
    """
    if torch.compiler.is_compiling():
        return [slice(None)]
    return [slice(start, min(start + CHUNK, tokens)) for start in range(0, tokens, CHUNK)]


def by_head(x: Embeddings, heads: int, *layers: nn.Linear) -> Wider:
    """Apply layers to x, one after another, and split the heads: (batch, head, token, channel).

    In float32 at least, whatever autocast says: it is added up over many tokens.
    """
    width = layers[0].weight.shape[-1]
    if x.ndim != 3 or x.shape[-1] != width:
        raise ValueError(
            f"`x` must be what the layer reads, (batch, token, {width}), got {tuple(x.shape)}."
        )
    with no_autocast(x):
        for layer in layers:
            dtype = torch.promote_types(x.dtype, layer.weight.dtype)
            dtype = torch.promote_types(dtype, torch.float32)
            bias = None if layer.bias is None else layer.bias.to(dtype)
            x = F.linear(x.to(dtype), layer.weight.to(dtype), bias)
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


def linear(width: int, out: int, bias: float | None = None) -> nn.Linear:
    """A linear layer as language models start: small random weights, and `bias`; None: without."""
    room("a layer", out, width)
    layer = nn.Linear(width, out, bias=bias is not None)
    nn.init.normal_(layer.weight, std=0.02)
    if bias is not None:
        nn.init.constant_(layer.bias, bias)
    return layer
