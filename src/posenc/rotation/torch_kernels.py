"""The rotation on the CPU, without a compiler: what counts is how often memory is passed over.

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
    wide = x if x.dtype is torch.float32 else x.float()
    pairs = _pairs(wide)
    if pairs is None:
        pairs = wide.clone(memory_format=torch.contiguous_format).view(torch.complex64)
    if out is None or wide is not x or (into := _pairs(out)) is None:
        made = (pairs * _cis(by)).view(torch.float32)
        return out.copy_(made) if out is not None else made if wide is x else made.to(x.dtype)
    torch.mul(pairs, _cis(by), out=into)
    return out


def by_complex_blocks(x: Tensor, by: Turn, out: Tensor | None = None) -> Tensor:
    out = torch.empty_like(x) if out is None else out
    wide = x.new_empty(0)
    for x_part, out_part, cis_part in _blocks(x, out, _cis(by)):
        if wide.shape != x_part.shape:
            wide = _room(x_part)
        wide.copy_(x_part).view(torch.complex64).mul_(cis_part)
        out_part.copy_(wide)
    return out


def by_roll(x: Tensor, by: Turn, out: Tensor | None = None) -> Tensor:
    cos, sin = by.forms if type(by) is Ready and len(by.forms) == 2 else doubled(by)
    wide = x if x.dtype is torch.float32 else x.float()
    made = (wide * cos).addcmul_(wide.roll(cos.shape[-1] // 2, -1), sin)
    if out is not None:
        return out.copy_(made)
    return made if wide is x else made.to(x.dtype)


def by_blocks(x: Tensor, by: Turn, out: Tensor | None = None) -> Tensor:
    out = torch.empty_like(x) if out is None else out
    halves = (t.unflatten(-1, (2, -1)) for t in (x, out))
    wide = turned = x.new_empty(0)
    for x_part, out_part, cos, sin in _blocks(*halves, by.cos.unsqueeze(-2), by.sin.unsqueeze(-2)):
        if x.dtype is torch.float32:
            wide, turned = x_part, out_part
        elif wide.shape != x_part.shape:
            wide, turned = _room(x_part), _room(x_part)
        (a, b), (first, second) = wide.split(1, -2), turned.split(1, -2)
        if wide is not x_part:
            wide.copy_(x_part)
        torch.mul(wide, cos, out=turned)
        first.addcmul_(b, sin, value=-1)
        second.addcmul_(a, sin)
        if turned is not out_part:
            out_part.copy_(turned)
    return out


def _blocks(x: Tensor, out: Tensor, *tables: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """All of them, cut alike along batch, head and token where x has its longest strides.

    Tokens change slowest: their part of the tables is then used for all heads while at hand.
    """
    left, most, cuts = x.numel(), BLOCK * torch.get_num_threads(), {}
    for axis in sorted(range(3), key=lambda axis: -x.stride(axis)):
        if left > most:
            cuts[axis] = max(1, x.shape[axis] * most // left)
            left = left // x.shape[axis] * cuts[axis]
    wide = (t.expand(*x.shape[:3], *t.shape[-(x.ndim - 3) :]) for t in tables)
    return _cut((x, out, *wide), sorted(cuts.items(), reverse=True))


def _cut(tensors: tuple[Tensor, ...], cuts: list[tuple[int, int]]) -> Iterator[tuple[Tensor, ...]]:
    if not cuts:
        yield tensors
        return
    (axis, size), *rest = cuts
    for part in zip(*(t.split(size, axis) for t in tensors), strict=True):
        yield from _cut(part, rest)


def _cis(by: Turn) -> Tensor:
    return by.forms[0] if type(by) is Ready and len(by.forms) == 1 else torch.complex(*by)


def _pairs(x: Tensor) -> Tensor | None:
    """As complex numbers, if pairs lie side by side and at even places."""
    try:
        return x.view(torch.complex64)
    except RuntimeError:
        return None


def _room(x: Tensor) -> Tensor:
    """As `x` in float32, its axes in the same order in memory, but channels side by side."""
    order = sorted(range(x.ndim - 1), key=lambda axis: -x.stride(axis))
    return torch.empty_permuted(x.shape, (*order, x.ndim - 1), dtype=torch.float32)
