"""Keys and values that nobody sees, which must change nothing."""

import torch
from torch import Tensor

from posenc.attention.call import Call, rows_of
from posenc.core.biases import pairs

HUGE = 2.0**60  # the largest ordinary key or value; a product of two is a float32
BLOCK = 128  # queries at a time


def visible(call: Call) -> Call:
    """Zero keys and values that no query of a call that `hides` keys sees, where they count.

    0 · NaN would be NaN, also in the gradients. Paths that go by a strip of pairs never touch a key
    that no query sees.
    """
    mask, by_strips = call.mask, call.implementation in ("auto", "toeplitz")
    assert mask is not None
    if call.seen is not None and by_strips and not (call.by_weight or call.trains):
        return call
    if call.readable and _ordinary(call.k) and _ordinary(call.v):
        # Hidden keys have weight 0, which is enough for finite values
        return call
    tokens, rows = call.shape[2], [slice(None)]
    # A compiled graph must not depend on the length, so ask for that first
    if not torch.compiler.is_compiling() and tokens > BLOCK:
        rows = rows_of(tokens, BLOCK)
    by_rows = [mask(*pairs(call.shape, some, call.q.device)).any(-2, keepdim=True) for some in rows]
    by_anybody = torch.cat(by_rows, -2).any(-2, keepdim=True).any(1, keepdim=True).mT
    k, v = (x.masked_fill(~by_anybody, 0) for x in (call.k, call.v))
    return call._replace(k=k, v=v)


def _ordinary(x: Tensor) -> bool:
    if not x.numel():
        return True
    low, high = x.detach().aminmax()
    # Both comparisons are False for NaN
    return -HUGE < float(low) and float(high) < HUGE
