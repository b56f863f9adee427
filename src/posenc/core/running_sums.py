"""Running sums over tokens of values that an encoding computes from the input of its layer.

Sums follow the order of tokens in memory, not their positions. Attention uses only the difference
of two sums, which is the sum over the tokens between a query and a key; packed documents and
padding therefore need no special treatment. Sums are in float64, because the difference of two
large sums would lose digits in float32.
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc.compat.tracing import no_autocast, traced
from posenc.core.prepared import Prepared, slice_tokens
from posenc.core.shapes import Embeddings, Wider
from posenc.support.arguments import room

CHUNK = 64  # tokens in one matrix product


class RunningSums:
    """Mixin for `Prepared` classes with sums over tokens, which `append` continues in new tokens.

    class Forgotten(RunningSums, Prepared, NamedTuple("Forgotten", [("total", Tensor)])): …
    """

    __slots__ = ()
    sums: ClassVar[tuple[str, ...]] = ("total",)  # the fields that are running sums

    def append(self: Any, more: Any) -> Prepared:
        return Prepared.append(self, self.shift_by_last(more)) if self.tokens else more

    def shift_by_last(self: Any, more: Any) -> Any:
        """Add the sums at the end of these tokens to all sums of the next tokens, `more`."""
        places = dict(zip(self._fields, self.places, strict=True))
        last = {
            name: slice_tokens(getattr(self, name), slice(-1, None), places[name])
            for name in self.sums
        }
        return more._replace(
            **{name: getattr(more, name) + so_far for name, so_far in last.items()}
        )


def running_sum(steps: Tensor) -> Tensor:
    """Return the cumulative sum over tokens of a tensor (…, token, channel), in float64.

    >>> running_sum(torch.tensor([[1.0], [2.0], [4.0]])).flatten()
    tensor([1., 3., 7.], dtype=torch.float64)
    """
    return steps.to(torch.float32 if steps.device.type == "mps" else torch.float64).cumsum(-2)


def split_chunks(tokens: int) -> list[slice]:
    """Split tokens into slices of 64 tokens.

    A traced graph gets a single slice, which is valid for every length.

    >>> split_chunks(100)
    [slice(0, 64, None), slice(64, 100, None)]
    """
    if traced():
        return [slice(None)]
    return [slice(start, min(start + CHUNK, tokens)) for start in range(0, tokens, CHUNK)]


def by_head(x: Embeddings, heads: int, *layers: nn.Linear) -> Wider:
    """Apply linear layers to x, and split the result by heads: (batch, head, token, channel).

    The result is float32 or wider even under autocast, because it is summed over many tokens.
    """
    width = layers[0].weight.shape[-1]
    if x.ndim != 3 or x.shape[-1] != width:
        raise ValueError(
            f"`x` must be the input of the layer, (batch, token, {width}), got {tuple(x.shape)}."
        )
    with no_autocast(x):
        for layer in layers:
            dtype = torch.promote_types(x.dtype, layer.weight.dtype)
            dtype = torch.promote_types(dtype, torch.float32)
            bias = None if layer.bias is None else layer.bias.to(dtype)
            x = F.linear(x.to(dtype), layer.weight.to(dtype), bias)
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


def linear(width: int, out: int, bias: float | None = None) -> nn.Linear:
    """Return a linear layer with small random weights.

    The weights are N(0, 0.02²). `bias` is the initial bias; None leaves out the bias.
    """
    room("a layer", out, width)
    layer = nn.Linear(width, out, bias=bias is not None)
    nn.init.normal_(layer.weight, std=0.02)
    if bias is not None:
        nn.init.constant_(layer.bias, bias)
    return layer
