"""Which path turns a tensor, and what does not fit any.

Whoever compiles, transforms or traces the call gets the plain formula, for it is what they want to
see; so do learned frequencies, float64, and devices that nothing was made for.
"""

import warnings
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from posenc.core.arguments import shown
from posenc.core.frequencies import Layout, checked, one_each
from posenc.core.shapes import Heads
from posenc.rotation.table import FEW, Ready, Turn

VECTOR = 16  # complex numbers that torch multiplies at a time
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def path_of(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> str:
    """Raises ValueError for what does not fit, whatever the path."""
    if torch.compiler.is_compiling():  # whose graph must not depend on what `by` is meant for
        _fits(x, by, layout, start)
        return "formula"
    meant = type(by) is Ready and start is None and by.meant == (layout, x.shape[2:])
    if not (meant and x.is_cpu and x.dtype in FLOATS):
        _fits(x, by, layout, start)
        learned = by.cos.requires_grad and torch.is_grad_enabled()
        if learned or x.dtype not in FLOATS or x.ndim != 4 or by.cos.dtype is not torch.float32:
            return "formula"
    if _watched(x):
        return "formula"
    if not x.is_cpu:
        return "triton" if x.is_cuda and kernel() is not None else "formula"
    if layout == "half":
        if x.numel() <= FEW:
            return "roll"
        return (
            "numba" if x.dtype is not torch.float16 and x.stride(-1) == 1 and fast() else "blocks"
        )
    if by.cos.shape[-1] < VECTOR:
        return "formula"
    return "complex" if x.dtype is torch.float32 or x.numel() <= FEW else "complex blocks"


def _watched(x: Tensor) -> bool:
    """Does somebody follow the single operations, to differentiate or to record them?"""
    return (
        type(x) not in (Tensor, nn.Parameter)
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
    )


@cache
def kernel() -> Any:
    """The kernel of CUDA; None where Triton, or the C compiler that it needs, is missing."""
    if find_spec("triton") is None:
        return None
    from posenc.rotation import triton_kernel

    return triton_kernel if triton_kernel.usable() else None


@cache
def _numba() -> Any:
    """What the extra `fast` brings; None where it is missing or does not work."""
    if find_spec("numba") is None:
        return None
    try:
        from posenc.rotation import numba_kernel

        numba_kernel.check()
    except Exception as error:
        warnings.warn(f"posenc rotates without Numba, which fails: {error}.", stacklevel=2)
        return None
    return numba_kernel


def fast() -> Any:
    """The kernel by Numba, or None; it must not be called in a process that was forked."""
    found = _numba()
    return None if found is None or found.forked else found


def alike(q: Tensor, k: Tensor, by: Turn) -> bool:
    """Does the path found for `q` do for `k`?"""
    one, other = q.shape, k.shape
    return (
        one[2:] == other[2:]
        and one[0] == other[0]
        and (getattr(by, "meant", None) is not None or by.cos.shape[-3] == 1)
        and q.dtype is k.dtype
        and ((q.is_cpu and k.is_cpu) or q.device == k.device)
        and type(k) is type(q)
    )


def _fits(x: Tensor, by: Turn, layout: Layout, start: int | None) -> None:
    """Refuses what would broadcast in silence: each token turns by its own angles."""
    checked(layout)
    if not isinstance(x, Tensor) or not isinstance(by, Turn):
        wrong = f"`x`, a tensor, and `by`, what `turn` returns, got {shown(x)} and {shown(by)}"
        raise TypeError(f"`rotate` takes {wrong}: call `turn(pos, freqs)` first.")
    size, table = x.shape, by.cos.shape
    channels, turned = size[-1], 2 * table[-1]
    if channels != turned if start is None else not 0 <= start <= channels - turned:
        where = f" from channel {start} on" if start else ""
        raise ValueError(f"the frequencies turn {turned} channels{where}, `x` has {channels}.")
    one_each(x, by.cos)
    if table[-3] != 1 and table[-3] != size[-3]:  # traced, `in` would miss an equal symbol
        raise ValueError(
            f"the frequencies are for {table[-3]} heads, `x` has {size[-3]}: repeat its heads."
        )
    if x.device != by.cos.device:
        raise ValueError(
            f"`x` is on {x.device}, the positions are on {by.cos.device}: move them to one device."
        )
    if not x.is_floating_point():
        raise TypeError(f"`x` must be real floating-point numbers, got {x.dtype}: convert it.")
