"""Merge attention outputs of separate sets of keys, weighted by their log-sum-exps L.

    out = Σ exp(L_part − L) out_part,      L_part = ln Σ exp(score),      L = ln Σ exp(L_part)

Two parts are merged by a weighted mean. The second weight, exp(L₂) / (exp(L₁) + exp(L₂)), is
computed as sigmoid(L₂ − L₁), which cannot overflow.
"""

import torch
from torch import Tensor


def softmax(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the softmax over one subset of the keys, and the log-sum-exp L of its scores.

    L follows from the largest weight, exp(largest score − L). `logsumexp` computes exp() of every
    score again, which is slow for results near 0.
    """
    weights = scores.softmax(-1)
    return weights, scores.amax(-1) - weights.amax(-1).log()


def join_(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> None:
    """Merge the attention outputs of two sets of keys, in place.

    `out` (…, value) and its log-sum-exp `lse` are overwritten.
    """
    out.lerp_(more.to(out.dtype), (more_lse - lse).sigmoid().unsqueeze(-1))
    lse.copy_(torch.logaddexp(lse, more_lse))
