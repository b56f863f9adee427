"""Rotate on the CPU without a compiler; the cost is the number of passes over memory.

    complex      interleaved pairs lie in memory as complex numbers do: one product
    halves       products and sums over a part that stays in the cache

16 bits are taken to float32 a part at a time. All give the bits of the formula, but for the last of
float32, before it is rounded to 16 bits: `addcmul` rounds once where the formula rounds a product
and a sum, and so do complex products for the few pairs that do not fill a vector.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from posenc.rotation.table import Turn

BLOCK = 1 << 17  # numbers for one thread: small enough for the cache
# Numbers for each of several threads, in 16 bits and in float32: they wait for each other after
# each operation, so that blocks must be larger.
LARGER, MANY = 1 << 18, 1 << 22


def by_complex(x: Tensor, by: Turn, out: Tensor | None = None) -> Tensor:
    # (…, token, channel) of interleaved pairs is (…, token, pair) of complex numbers: a view, if
    # strides allow it, so that x · (cos + i sin) reads and writes memory once.
    table, pairs = torch.complex(*by), _as_complex(x)
    if pairs is not None and out is None:
        return (pairs * table).view(torch.float32)
    if pairs is not None and out is not None and (turned := _as_complex(out)) is not None:
        torch.mul(pairs, table, out=turned)
        return out
    out, wide = torch.empty_like(x) if out is None else out, None
    for x_part, out_part, table_part in _blocks(x, out, table):
        wide = _float32_like(x_part, wide).copy_(x_part)
        wide.view(torch.complex64).mul_(table_part)
        out_part.copy_(wide)
    return out


def by_halves(x: Tensor, by: Turn, out: Tensor | None = None) -> Tensor:
    out, wide, turned = torch.empty_like(x) if out is None else out, None, None
    # Both channels of a pair are multiplied by the same cosine: one product for both halves.
    for x_part, out_part, cos, sin in _blocks(x, out, torch.cat((by.cos, by.cos), -1), by.sin):
        if x.dtype is torch.float32:
            _turn_halves(x_part, cos, sin, out_part)
        else:
            wide, turned = _float32_like(x_part, wide), _float32_like(x_part, turned)
            _turn_halves(wide.copy_(x_part), cos, sin, turned)
            out_part.copy_(turned)
    return out


def _turn_halves(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> None:
    (a, b), (first, second) = x.chunk(2, -1), torch.mul(x, cos, out=out).chunk(2, -1)
    first.addcmul_(b, sin, value=-1)
    second.addcmul_(a, sin)


def _blocks(x: Tensor, out: Tensor, *tables: Tensor) -> Iterable[tuple[Tensor, ...]]:
    """Blocks of `x`, `out` and the tables that fit the cache, cut alike along batch, head, token.

    Axes with the longest strides of x are cut first, so that a block is close together in memory.
    Tokens change slowest: their part of the tables serves all heads while it is in the cache.
    """
    threads, cuts = torch.get_num_threads(), {}
    # Where a core is busy its thread comes late, and all others wait, in each operation on a block.
    # In 16 bits that would be cheaper too, but large copies in float32 would cost more when quiet.
    several = MANY if x.dtype is torch.float32 else LARGER
    size, block = x.numel(), BLOCK if threads == 1 else several * threads
    if size <= block:
        return [(x, out, *tables)]
    for axis in sorted(range(3), key=lambda axis: -x.stride(axis)):
        if size > block:
            cuts[axis] = max(1, x.shape[axis] * block // size)
            size = size // x.shape[axis] * cuts[axis]
    wide = (t.expand(*x.shape[:3], -1) for t in tables)
    return _cut((x, out, *wide), sorted(cuts.items(), reverse=True))


def _cut(tensors: tuple[Tensor, ...], cuts: list[tuple[int, int]]) -> Iterator[tuple[Tensor, ...]]:
    """Split all tensors by (axis, size), one axis after the other."""
    if not cuts:
        yield tensors
        return
    (axis, size), *others = cuts
    for part in zip(*(t.split(size, axis) for t in tensors), strict=True):
        yield from _cut(part, others)


def _as_complex(x: Tensor) -> Tensor | None:
    """View float32 as complex; None unless pairs lie side by side and at even places in memory."""
    if x.dtype is not torch.float32:
        return None
    try:
        return x.view(torch.complex64)
    except RuntimeError:
        return None


def _float32_like(x: Tensor, before: Tensor | None) -> Tensor:
    """Empty float32, where possible the memory of the block before, which lies in the cache."""
    if before is not None and before.shape == x.shape:
        return before
    return torch.empty_like(x, dtype=torch.float32, memory_format=torch.contiguous_format)
