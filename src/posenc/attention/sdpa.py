"""Attention by torch's `scaled_dot_product_attention`, for any mask but without a bias."""

import torch.nn.functional as F
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu import sinks
from posenc.attention.path import Path
from posenc.compat.tracing import beyond_gradients, traced
from posenc.core.biases import dense


class Sdpa(Path):
    """The implementation "sdpa": torch's attention kernel, for calls without a bias."""

    def cannot(self, call: Call) -> str:
        if call.bias is not None:
            return "torch's kernel does not support a bias"
        if call.by_weight:
            return f"{call.name} needs the attention weights, which torch's kernel does not return"
        return "" if call.plain else unsupported_softmax(call)

    def skips(self, call: Call) -> str:
        if not call.readable and beyond_gradients():
            return "torch's kernels support only first derivatives in reverse mode"
        if call.mask is None or call.causal or (call.seen is None and not call.q.is_cuda):
            return ""
        return "other kernels skip blocks of masked keys"

    def why(self, call: Call) -> str:
        return f"{call.name} adds nothing to scores or values, so torch's kernel can be used."

    def run(self, call: Call) -> Tensor:
        q, k, v, mask = call.q, call.k, call.v, call.mask
        if mask is None or call.causal:
            return kernel(call, q, k, v, is_causal=call.causal)
        return with_mask(call, q, k, v, dense(mask, call.shape, q.device))


def unsupported_softmax(call: Call) -> str:
    """Return the reason why torch's kernel cannot compute the softmax of a call, or ""."""
    if call.softcap is not None:
        return "torch's kernel does not support `softcap`"
    return "" if call.sinks is None else sinks.unsupported(call)


def with_mask(
    call: Call, q: Tensor, k: Tensor, v: Tensor, seen: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Call torch's kernel with a mask, and set the output of queries that see no key to 0."""
    alone = ~seen.any(-1, keepdim=True)
    shown = seen | alone
    shown = shown if bias is None else bias.masked_fill(~shown, float("-inf"))
    return kernel(call, q, k, v, shown).masked_fill(alone, 0)


def kernel(
    call: Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """Call torch's kernel; `mask` is bool, or numbers that are added to the scores."""
    channels = v.shape[-1]
    # The fused kernels need as many channels of v as of q and k
    if channels < q.shape[-1]:
        v = F.pad(v, (0, q.shape[-1] - channels))
    if mask is not None and mask.shape != (shape := (*q.shape[:3], k.shape[2])):
        mask = mask.expand(shape)
    if call.sinks is not None:
        return sinks.attended(call, q, k, v, mask, is_causal)[..., :channels]
    # In a trace, the comparison itself would be a symbol
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
    """Compute attention of one query per head; heads that share keys are computed together.

    The heads of a group become rows of one head, so that each key is read once per group.
    """
    (batch, heads, _, channels), (_, groups, keys, _) = q.shape, k.shape
    if groups == heads:
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
    rows = batch, groups, heads // groups
    # torch cannot infer a size of −1 for an empty batch
    mask = None if mask is None else mask.reshape(*rows, keys)
    q = q.reshape(*rows, channels)
    out = F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
    return out.reshape(batch, heads, 1, v.shape[-1])
