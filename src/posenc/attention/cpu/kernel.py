"""torch's CPU kernel of attention with the log-sum-exp of each query, and its backward pass.

Before torch 2.9 the kernel silently reads wrong memory if heads share keys, or if the last axis of
the mask is not contiguous. For these versions keys are repeated, their gradients are summed over
the heads that share them, and masks are copied.
"""

import torch
from torch import Tensor

from posenc.compat import private_torch
from posenc.core.biases import per_query_head

READS_STRIDES = private_torch.VERSION >= (2, 9)


def lacks() -> str:
    """Return the reason why this version of torch cannot call the CPU kernel, or ""."""
    known = private_torch.flash is not None and private_torch.flash_backward is not None
    return "" if known else f"torch {torch.__version__} has no CPU kernel with log-sum-exps"


def flash(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute attention: output (batch, head, query, value), log-sum-exps (batch, head, query)."""
    if not READS_STRIDES:
        k, v, mask = _readable(q, k, v, mask)
    return private_torch.flash(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)


def flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, mask: Tensor | None,
    scale: float, causal: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of q, k and v, computed by torch's CPU kernel."""
    keys, values, mask = (k, v, mask) if READS_STRIDES else _readable(q, k, v, mask)
    of_q, of_k, of_v = private_torch.flash_backward(
        grad, q, keys, values, out, lse, 0.0, causal, attn_mask=mask, scale=scale
    )
    return of_q, _summed(of_k, k), _summed(of_v, v)


def _readable(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return keys, values and mask, copied if old versions of torch would misread strides."""
    if mask is not None and mask.stride(-1) not in (0, 1):
        mask = mask.contiguous()
    return per_query_head(k, q), per_query_head(v, q), mask


def _summed(grad: Tensor, x: Tensor) -> Tensor:
    """Sum the gradients of all query heads that share a key head of x."""
    if grad.shape[1] == x.shape[1]:
        return grad
    exact = torch.promote_types(grad.dtype, torch.float32)
    return grad.unflatten(1, (x.shape[1], -1)).sum(2, dtype=exact)
