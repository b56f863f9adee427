"""CPU kernels of the rotation in plain torch, with few passes over memory.

    complex      interleaved pairs have the memory layout of complex numbers: one product
    halves       products and sums over blocks that stay in the CPU's cache

16-bit numbers are converted to float32 block by block. Results equal the formula except for the
last bit of float32, before rounding to 16 bits: `addcmul` rounds once where the formula rounds a
product and a sum. Complex products do the same for pairs at the end that do not fill a vector.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from posenc.rotation.table import Turn

BLOCK = 1 << 17  # numbers in a block with one thread, which fit into the CPU's cache
# Numbers per thread with several threads, in 16 bits and in float32. Threads wait for each other
# after each operation, so blocks must be larger.
LARGER, MANY = 1 << 18, 1 << 22


def by_complex(x: Tensor, by: Turn, out: Tensor | None = None) -> Tensor:
    # View interleaved pairs as complex numbers, (…, token, pair), if strides allow it. Then
    # x · (cos + i sin) reads and writes memory once.
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
    # Both channels of a pair have the same cosine, so one product multiplies both halves
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
    """Split `x`, `out` and the tables into corresponding blocks that fit into a CPU cache.

    Axes with the largest strides of x are split first, so that a block is contiguous in memory if
    possible. The token axis is the outer loop, so that all heads reuse the tables in the cache.
    """
    threads, cuts = torch.get_num_threads(), {}
    # On a busy core all threads wait for the last one in each operation on a block. Larger blocks
    # would help for 16 bits too, but their float32 copies would be slower on a quiet machine.
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
    """Split all tensors by `cuts` (axis, size), and yield tuples of corresponding pieces."""
    if not cuts:
        yield tensors
        return
    (axis, size), *others = cuts
    for part in zip(*(t.split(size, axis) for t in tensors), strict=True):
        yield from _cut(part, others)


def _as_complex(x: Tensor) -> Tensor | None:
    """View float32 as complex numbers; None if strides or storage offset do not allow it."""
    if x.dtype is not torch.float32:
        return None
    try:
        return x.view(torch.complex64)
    except RuntimeError:
        return None


def _float32_like(x: Tensor, before: Tensor | None) -> Tensor:
    """Return an uninitialised float32 tensor of x's shape; reuse `before` if it has that shape."""
    if before is not None and before.shape == x.shape:
        return before
    return torch.empty_like(x, dtype=torch.float32, memory_format=torch.contiguous_format)
