"""Torch's own kernel, `scaled_dot_product_attention`: it carries no bias, and any mask."""

import torch.nn.functional as F
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu import sinks
from posenc.attention.path import Path
from posenc.compat.tracing import beyond_gradients, traced
from posenc.core.biases import dense
from posenc.core.masks import Mask


class Sdpa(Path):
    """Torch's kernel for attention without a bias, with any mask."""

    def serves(self, call: Call) -> str:
        if call.bias is not None:
            return "torch's kernel carries no bias"
        if call.by_weight:
            return f"torch's kernel carries no bias, and {call.name} takes the weights themselves"
        return "" if call.plain else cannot_weigh(call)

    def suits(self, call: Call) -> str:
        if not call.readable and beyond_gradients():
            return "torch's kernels know first derivatives alone, and backwards"
        if call.mask is None or (isinstance(call.mask, Mask) and call.mask.is_causal):
            return ""
        if call.seen is None and not call.q.is_cuda:
            return ""
        if call.seen is not None and call.seen.is_causal:
            return ""
        return "a kernel that goes by blocks of keys leaves out what the mask hides"

    def why(self, call: Call) -> str:
        return f"{call.name} adds nothing to scores or values, as torch wants it."

    def run(self, call: Call) -> Tensor:
        mask, seen = call.mask, call.seen
        if mask is None:
            return kernel(call, call.q, call.k, call.v)
        if (isinstance(mask, Mask) and mask.is_causal) or (seen is not None and seen.is_causal):
            return kernel(call, call.q, call.k, call.v, is_causal=True)
        return unless_alone(call, call.q, call.k, call.v, dense(mask, call.shape, call.q.device))


def cannot_weigh(call: Call) -> str:
    """Why torch's kernel cannot make the weights of this call; "" where it can."""
    if call.softcap is not None:
        return "torch's kernel has no place for `softcap`"
    return "" if call.sinks is None else sinks.cannot_serve(call)


def unless_alone(
    call: Call, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Call the kernel, and give 0 to queries that see no key: kernels differ about these."""
    alone = ~seen.any(-1, keepdim=True)
    shown = seen | alone
    shown = shown if bias is None else bias.masked_fill(~shown, float("-inf"))
    return kernel(call, q, k, v, shown).masked_fill(alone, 0)


def kernel(
    call: Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Call the kernel for some queries and keys; `mask`: bool, or what is added to the scores."""
    channels = v.shape[-1]
    # The fused kernels want as many channels of v as of q and k.
    if channels < q.shape[-1]:
        v = F.pad(v, (0, q.shape[-1] - channels))
    if mask is not None and mask.shape != (shape := (*q.shape[:3], k.shape[2])):
        mask = mask.expand(shape)
    if call.sinks is not None:
        return sinks.attended(call, q, k, v, mask, is_causal)[..., :channels]
    # Traced, the comparison would be a symbol
    grouped = True if q.shape[1] != k.shape[1] else False
    if grouped and q.shape[2] == 1 and not traced():
        out = one_query(q, k, v, mask, call.scale, call.dropout)
    else:
        out = F.scaled_dot_product_attention(
            q, k, v, mask, call.dropout, is_causal, scale=call.scale, enable_gqa=grouped
        )
    if call.trains and not traced():
        sinks.explain_second_derivative(out)
    return out if out.shape[-1] == channels else out[..., :channels]


def one_query(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, dropout: float = 0.0
) -> Tensor:
    """Attention of one query to all keys, which heads of a group share.

    The heads of a group are rows of one query, so that each key is read once, and not once a head.
    """
    (batch, heads, _, channels), (_, groups, keys, _) = q.shape, k.shape
    if groups == heads:
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
    rows = batch, groups, heads // groups
    # Of an empty batch torch could not work out a size that is left to it
    mask = None if mask is None else mask.reshape(*rows, keys)
    q = q.reshape(*rows, channels)
    out = F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
    return out.reshape(batch, heads, 1, v.shape[-1])
