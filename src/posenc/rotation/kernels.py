"""Choose the kernel that turns a tensor, and refuse tensors and tables that do not fit.

Under torch.compile, functorch and tracing the plain formula is used: its operations are what a
compiler or a transform has to see. It is also used for float64, for learned frequencies elsewhere
than on the CPU, and on devices that have no kernel of their own.
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
FEW_NUMBERS = 1 << 19  # of queries or keys: up to these it is the number of calls that counts


def kernel_for(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> str:
    """The name of the kernel. Raises ValueError for what does not fit, whatever the kernel."""
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
    """The module of the CUDA kernel; None where Triton, or the C compiler it needs, is missing."""
    if find_spec("triton") is None:
        return None
    from posenc.rotation import triton_kernel

    return triton_kernel if triton_kernel.usable() else None


def load_numba() -> Any:
    """The module of the Numba kernel; None where there is none, and in a forked process."""
    return kernels.load("posenc.rotation.numba_kernel")


def _check_fit(x: Tensor, by: Turn, layout: Layout, start: int | None) -> None:
    """Refuse what would broadcast in silence: each token turns by its own angles."""
    checked(layout)
    if not isinstance(x, Tensor) or not isinstance(by, Turn):
        expected = f"`x`, a tensor, and `by`, what `turn` returns, got {brief(x)} and {brief(by)}"
        raise TypeError(f"`rotate` takes {expected}: call `turn(pos, freqs)` first.")
    size, table = x.shape, by.cos.shape
    channels, turned = size[-1], 2 * table[-1]
    if channels != turned if start is None else not 0 <= start <= channels - turned:
        where = f" from channel {start} on" if start else ""
        raise ValueError(f"the frequencies turn {turned} channels{where}, `x` has {channels}.")
    refuse_broadcast(x, by.cos)
    if x.device != by.cos.device:
        raise ValueError(
            f"`x` is on {x.device}, the positions are on {by.cos.device}: move them to one device."
        )
    if not x.is_floating_point():
        raise TypeError(f"`x` must be real floating-point numbers, got {x.dtype}: convert it.")
