"""Zero fully masked keys and values, so that NaN there cannot reach the output or gradients."""

import torch
from torch import Tensor

from posenc.attention.call import Call, rows_of
from posenc.core.biases import pairs

HUGE = 2.0**60  # bound of keys and values whose products are finite in float32
BLOCK = 128  # queries in one evaluation of the mask


def zero_fully_masked(call: Call) -> Call:
    """Zero the keys and values that no query sees, if NaN in them could reach the output.

    0 · NaN is NaN, in outputs and in gradients. Banded kernels never read fully masked keys.
    """
    mask, by_strips = call.mask, call.implementation in ("auto", "toeplitz")
    assert mask is not None
    if call.seen is not None and by_strips and not (call.by_weight or call.trains):
        return call
    if call.readable and _products_are_finite(call.k) and _products_are_finite(call.v):
        # Masked keys have the weight 0, which suffices if all values are finite
        return call
    tokens, rows = call.shape[2], [slice(None)]
    # The comparison with `tokens` would make a compiled graph depend on the length
    if not torch.compiler.is_compiling() and tokens > BLOCK:
        rows = rows_of(tokens, BLOCK)
    by_rows = [mask(*pairs(call.shape, some, call.q.device)).any(-2, keepdim=True) for some in rows]
    by_anybody = torch.cat(by_rows, -2).any(-2, keepdim=True).any(1, keepdim=True).mT
    k, v = (x.masked_fill(~by_anybody, 0) for x in (call.k, call.v))
    return call._replace(k=k, v=v)


def _products_are_finite(x: Tensor) -> bool:
    if not x.numel():
        return True
    low, high = x.detach().aminmax()
    # Both comparisons are False for NaN
    return -HUGE < float(low) and float(high) < HUGE
