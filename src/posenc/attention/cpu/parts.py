"""Attention to some keys at a time: outputs of parts of the keys, joined by their log-sum-exps L.

    out = Σ exp(L_part − L) out_part,      L_part = ln Σ exp(score),      L = ln Σ exp(L_part)

Two parts join to a mean whose second weight, exp(L₂) / (exp(L₁) + exp(L₂)), is sigmoid(L₂ − L₁): no
sum of exponentials is ever formed, so nothing overflows.
"""

import torch
from torch import Tensor


def softmax(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The weights of the keys of a part, and L, one axis less.

    The largest weight is exp(largest score − L). `logsumexp` takes exp() of every score, which is
    slow where the result is 0.
    """
    weights = scores.softmax(-1)
    return weights, scores.amax(-1) - weights.amax(-1).log()


def join_(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> None:
    """Join the output and L of other keys to `out`, (…, value), and `lse`, in place."""
    out.lerp_(more.to(out.dtype), (more_lse - lse).sigmoid().unsqueeze(-1))
    lse.copy_(torch.logaddexp(lse, more_lse))
