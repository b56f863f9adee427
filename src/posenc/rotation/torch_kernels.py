"""Rotate on the CPU without a compiler; the cost is the number of passes over memory.

    complex          interleaved pairs lie in memory as complex numbers do: one product
    complex blocks   the same for 16 bits, which are taken to float32 a few at a time
    roll             few numbers, half layout: x · (cos, cos) + (b, a) · (−sin, sin), few calls
    blocks           half layout: products and sums over a part that stays in the cache

All give the bits of the formula, but for the last of float32, before it is rounded to 16 bits:
`addcmul` rounds once where the formula rounds a product and a sum, and so do complex products for
the few pairs that do not fill a vector.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from posenc.rotation.table import Ready, Turn, doubled

BLOCK = 1 << 18  # numbers for each thread: small enough for the cache, and threads meet seldom


def by_complex(x: Tensor, by: Turn, out: Tensor | None = None) -> Tensor:
    # (…, token, channel) of interleaved pairs is (…, token, pair) of complex numbers: a view, if
    # strides allow it, so that x · (cos + i sin) reads and writes memory once.
    wide = x if x.dtype is torch.float32 else x.float()
    pairs = _as_complex(wide)
    if pairs is None:
        pairs = wide.clone(memory_format=torch.contiguous_format).view(torch.complex64)
    if out is None or wide is not x or (into := _as_complex(out)) is None:
        turned = (pairs * _cis(by)).view(torch.float32)
        return out.copy_(turned) if out is not None else turned if wide is x else turned.to(x.dtype)
    torch.mul(pairs, _cis(by), out=into)
    return out


def by_complex_blocks(x: Tensor, by: Turn, out: Tensor | None = None) -> Tensor:
    out = torch.empty_like(x) if out is None else out
    wide = x.new_empty(0)  # float32, the size of one block: it stays in the cache
    for x_part, out_part, cis_part in _blocks(x, out, _cis(by)):
        if wide.shape != x_part.shape:
            wide = _float32_like(x_part)
        wide.copy_(x_part).view(torch.complex64).mul_(cis_part)
        out_part.copy_(wide)
    return out


def by_roll(x: Tensor, by: Turn, out: Tensor | None = None) -> Tensor:
    # Both tables as wide as x: (cos, cos) and (−sin, sin). Rolled by half of its channels x is
    # (b, a), so that x · (cos, cos) + (b, a) · (−sin, sin) = (a cos − b sin, b cos + a sin).
    cos, sin = by.forms if type(by) is Ready and len(by.forms) == 2 else doubled(by)
    wide = x if x.dtype is torch.float32 else x.float()
    turned = (wide * cos).addcmul_(wide.roll(cos.shape[-1] // 2, -1), sin)
    if out is not None:
        return out.copy_(turned)
    return turned if wide is x else turned.to(x.dtype)


def by_blocks(x: Tensor, by: Turn, out: Tensor | None = None) -> Tensor:
    out = torch.empty_like(x) if out is None else out
    # (…, token, 2, pair): the axis of 2 tells a from b; tables get one of 1 and serve both.
    halves = (t.unflatten(-1, (2, -1)) for t in (x, out))
    wide = turned = x.new_empty(0)
    for x_part, out_part, cos, sin in _blocks(*halves, by.cos.unsqueeze(-2), by.sin.unsqueeze(-2)):
        if x.dtype is torch.float32:
            wide, turned = x_part, out_part
        elif wide.shape != x_part.shape:
            wide, turned = _float32_like(x_part), _float32_like(x_part)
        (a, b), (first, second) = wide.split(1, -2), turned.split(1, -2)
        if wide is not x_part:
            wide.copy_(x_part)
        torch.mul(wide, cos, out=turned)  # (a cos, b cos)
        first.addcmul_(b, sin, value=-1)  # a cos − b sin
        second.addcmul_(a, sin)  # b cos + a sin
        if turned is not out_part:
            out_part.copy_(turned)
    return out


def _blocks(x: Tensor, out: Tensor, *tables: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Blocks of `x`, `out` and the tables that fit the cache, cut alike along batch, head, token.

    Axes with the longest strides of x are cut first, so that a block is close together in memory.
    Tokens change slowest: their part of the tables serves all heads while it is in the cache.
    """
    size, block, cuts = x.numel(), BLOCK * torch.get_num_threads(), {}
    for axis in sorted(range(3), key=lambda axis: -x.stride(axis)):
        if size > block:
            cuts[axis] = max(1, x.shape[axis] * block // size)
            size = size // x.shape[axis] * cuts[axis]
    wide = (t.expand(*x.shape[:3], *t.shape[-(x.ndim - 3) :]) for t in tables)
    return _cut((x, out, *wide), sorted(cuts.items(), reverse=True))


def _cut(tensors: tuple[Tensor, ...], cuts: list[tuple[int, int]]) -> Iterator[tuple[Tensor, ...]]:
    """Split all tensors by (axis, size), one axis after the other."""
    if not cuts:
        yield tensors
        return
    (axis, size), *others = cuts
    for part in zip(*(t.split(size, axis) for t in tensors), strict=True):
        yield from _cut(part, others)


def _cis(by: Turn) -> Tensor:
    return by.forms[0] if type(by) is Ready and len(by.forms) == 1 else torch.complex(*by)


def _as_complex(x: Tensor) -> Tensor | None:
    """View as complex numbers; None unless pairs lie side by side and at even places in memory."""
    try:
        return x.view(torch.complex64)
    except RuntimeError:
        return None


def _float32_like(x: Tensor) -> Tensor:
    """Empty float32 like `x`, its axes in the same order in memory, but channels side by side."""
    order = sorted(range(x.ndim - 1), key=lambda axis: -x.stride(axis))
    return torch.empty_permuted(x.shape, (*order, x.ndim - 1), dtype=torch.float32)
