"""Read the mask of a transformers model back as one of `posenc.masks`: most are a diagonal strip.

A model hands each layer a boolean square, or None for the causal one. Attention with a bias goes
faster where it knows that a mask is a strip low ≤ i − j ≤ high of queries i and keys j, in the
order in which the cache holds them. The first and the last row say which strip that could be; the
whole square is compared with it, so nothing is ever assumed.
"""

from math import inf

import torch
from torch import Tensor

from posenc.compat.tracing import is_eager_cpu
from posenc.core.masks import Mask, OffsetRange, causal


def mask_of(
    seen: Tensor | None, batch: int, queries: int, keys: int, causal: bool = True
) -> Mask | None:
    """Read the mask of the last `queries` tokens over `keys` keys; None: they see everything.

    Where a model hands over none, it is the causal one, or `causal` is False and there is none.
    """
    if seen is None:
        plain = queries == 1 or not causal
        return None if plain else _strip(queries - keys, inf, queries, keys)
    seen = seen[..., :keys]
    return _from_square(seen) if is_eager_cpu(seen) else _dense(seen, batch)


def _from_square(seen: Tensor) -> Mask | None:
    batch, heads, queries, keys = seen.shape
    square = seen[0, 0]
    alike = heads == 1 and (batch == 1 or not seen.stride(0) or bool((seen == seen[:1]).all()))
    if not alike or not queries:
        return _dense(seen, batch)
    rows = [(i, square[i].nonzero().flatten()) for i in (0, queries - 1)]
    if not all(len(row) for _, row in rows):
        return _dense(seen, batch)
    low = min(i - int(row[-1]) for i, row in rows)
    high = max(i - int(row[0]) for i, row in rows)
    i, j = torch.arange(queries, device=seen.device).unsqueeze(-1), torch.arange(keys)
    if not torch.equal(square, (j <= i - low) & (j >= i - high)):
        return _dense(seen, batch)
    return _strip(low, high, queries, keys)


def _strip(low: float, high: float, queries: int, keys: int) -> Mask | None:
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
