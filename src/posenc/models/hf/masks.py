"""Convert the mask of a transformers model to a `Mask`, in most cases a diagonal band.

A model passes each layer a boolean matrix, or None for the causal mask. Attention with a bias is
faster if the mask is a band low ≤ i − j ≤ high of queries i and keys j, in the order of the cache.
The first and the last row determine the only possible band, with which the whole matrix is then
compared.
"""

from math import inf

import torch
from torch import Tensor

from posenc.compat.tracing import is_eager_cpu
from posenc.core.masks import Mask, OffsetRange, causal


def mask_of(
    seen: Tensor | None, batch: int, queries: int, keys: int, causal: bool = True
) -> Mask | None:
    """Convert a model's mask, of `queries` new tokens and `keys` keys; None if all are visible.

    - `seen`: the model's mask, (batch, head or 1, query, key), True for seen keys; None: causal, or
      no mask if `causal` is False
    """
    if seen is None:
        plain = queries == 1 or not causal
        return None if plain else _band(queries - keys, inf, queries, keys)
    seen = seen[..., :keys]
    return _from_matrix(seen) if is_eager_cpu(seen) else _dense(seen, batch)


def _from_matrix(seen: Tensor) -> Mask | None:
    """Convert a boolean matrix to a band mask, low ≤ i − j ≤ high, or otherwise to a dense mask."""
    batch, heads, queries, keys = seen.shape
    matrix = seen[0, 0]
    alike = heads == 1 and (batch == 1 or not seen.stride(0) or bool((seen == seen[:1]).all()))
    if not alike or not queries:
        return _dense(seen, batch)
    rows = [(i, matrix[i].nonzero().flatten()) for i in (0, queries - 1)]
    if not all(len(row) for _, row in rows):
        return _dense(seen, batch)
    low = min(i - int(row[-1]) for i, row in rows)
    high = max(i - int(row[0]) for i, row in rows)
    i, j = torch.arange(queries, device=seen.device).unsqueeze(-1), torch.arange(keys)
    if not torch.equal(matrix, (j <= i - low) & (j >= i - high)):
        return _dense(seen, batch)
    return _band(low, high, queries, keys)


def _band(low: float, high: float, queries: int, keys: int) -> Mask | None:
    """Return the mask low ≤ i − j ≤ high of queries i and keys j; None if it allows all pairs."""
    if high >= queries - 1:
        if low <= 1 - keys:
            return None
        if low == 0 and queries == keys:
            return causal()
    sees = lambda b, h, i, j: (i - j >= low) & (i - j <= high)  # noqa: E731
    return Mask(sees, bands=(OffsetRange(low, high),), made_of=())


def _dense(seen: Tensor, batch: int) -> Mask:
    seen = seen.expand(batch, -1, -1, -1)
    shared = seen.shape[1] == 1
    return Mask(lambda b, h, i, j: seen[b, 0 if shared else h, i, j], made_of=(seen,))
