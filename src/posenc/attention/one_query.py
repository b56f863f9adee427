"""Attention of one query by the fastest kernel there is: Numba's, or a number of torch's calls."""

import torch
from torch import Tensor

from posenc.core import fast
from posenc.core.biases import OneQuery
from posenc.core.cache import is_autocast_cpu

LEAST_NUMBERS = 1 << 16  # of the keys: below, what is saved is less than what loading it takes


def fastest(
    otherwise: OneQuery,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    row: Tensor | None = None,
    query_rows: Tensor | None = None,
    key_rows: Tensor | None = None,
    end: Tensor | None = None,
    value_rows: Tensor | None = None,
    value_end: Tensor | None = None,
) -> OneQuery:
    """`otherwise`, or a function that equals it for what is like q, k and v: see `numba_kernel`.

    score(j) = (q · scale + end + key_row(j)) · kⱼ + q · scale · query_row(j) + row(j)
    out = value_end + Σⱼ weight(j) (vⱼ + value_row(j)),       weights = softmax(scores)
    """
    if not (q.dtype is k.dtype is v.dtype is torch.float32) or k.numel() < LEAST_NUMBERS:
        return otherwise
    if q.shape[2] != 1 or q.shape[3] != v.shape[3] or is_autocast_cpu():
        return otherwise
    kernel = fast.load("posenc.attention.numba_kernel")
    if kernel is None:
        return otherwise
    added = row, query_rows, key_rows, end, value_rows, value_end
    return kernel.ByNumba(otherwise, q, k, v, scale, *added)
