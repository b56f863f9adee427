"""Choose the kernel of a rotation, and check that the tensor and the table fit.

The plain formula is used under torch.compile, functorch and tracing, which need ordinary torch
operations. It is also used for float64, for learned frequencies on devices other than the CPU, and
on devices without a kernel.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from posenc.compat import kernels
from posenc.compat.tracing import transformed, unwrapped
from posenc.core.frequencies import Layout, checked, refuse_broadcast
from posenc.core.shapes import Heads
from posenc.rotation.table import Turn
from posenc.support.arguments import brief

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
FEW_NUMBERS = 1 << 19  # numbers in queries or keys up to which call overhead dominates


def kernel_for(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> str:
    """Return the name of the kernel to use; raise ValueError if x and the table do not fit."""
    _check_fit(x, by, layout, start)
    if x.dtype not in FLOATS or x.ndim != 4 or by.cos.dtype is not torch.float32:
        return "formula"
    if transformed() or not unwrapped(x):
        return "formula"
    if not x.is_cpu:
        learned = by.cos.requires_grad and torch.is_grad_enabled()
        return "triton" if x.is_cuda and not learned and load_triton() is not None else "formula"
    if layout == "interleaved":
        return "complex"
    fits_numba = x.dtype is not torch.float16 and x.stride(-1) == 1
    return "numba" if x.numel() > FEW_NUMBERS and fits_numba and load_numba() else "halves"


@cache
def load_triton() -> Any:
    """Return the module of the CUDA kernel; None without Triton or the C compiler that it needs."""
    if find_spec("triton") is None:
        return None
    from posenc.rotation import triton_kernel

    return triton_kernel if triton_kernel.usable() else None


def load_numba() -> Any:
    """Return the module of the Numba kernel; None without Numba, and in a forked process."""
    return kernels.load("posenc.rotation.numba_kernel")


def _check_fit(x: Tensor, by: Turn, layout: Layout, start: int | None) -> None:
    """Raise an error if x and the rotation table do not fit together.

    torch would broadcast some of the wrong sizes.
    """
    checked(layout)
    if not isinstance(x, Tensor) or not isinstance(by, Turn):
        raise TypeError(
            f"`x` of `rotate` must be a tensor, and `by` the result of `turn`, got {brief(x)} and"
            f" {brief(by)}. Call `turn(pos, freqs)` first."
        )
    size, table = x.shape, by.cos.shape
    channels, turned = size[-1], 2 * table[-1]
    if channels != turned if start is None else not 0 <= start <= channels - turned:
        where = f" from channel {start} on" if start else ""
        raise ValueError(
            f"`x` must have {turned} channels to rotate{where}, got {channels} channels."
        )
    refuse_broadcast(x, by.cos)
    if x.device != by.cos.device:
        raise ValueError(
            f"the positions must be on the device of `x`, {x.device}, got {by.cos.device}. Move"
            " them there."
        )
    if not x.is_floating_point():
        raise TypeError(f"`x` must be real floating-point numbers, got {x.dtype}. Convert `x`.")
