"""Choose the kernel that turns a tensor, and refuse tensors and tables that do not fit.

Under torch.compile, functorch and tracing the plain formula is used: its operations are what a
compiler or a transform has to see. It is also used for float64, for learned frequencies elsewhere
than on the CPU, and on devices that have no kernel of their own.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from posenc.core import fast
from posenc.core.arguments import shown
from posenc.core.frequencies import Layout, checked, refuse_broadcast
from posenc.core.shapes import Heads
from posenc.core.tracing import traced, transformed
from posenc.rotation.table import FEW_NUMBERS, Ready, Turn

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def kernel_for(x: Heads, by: Turn, layout: Layout, start: int | None = None) -> str:
    """The name of the kernel. Raises ValueError for what does not fit, whatever the kernel."""
    if torch.compiler.is_compiling():  # the graph must not depend on what `by` is meant for
        _check_fit(x, by, layout, start)
        return "formula"
    prepared_for_this = type(by) is Ready and start is None and by.meant == (layout, x.shape[2:])
    if not (prepared_for_this and x.is_cpu and x.dtype in FLOATS):
        _check_fit(x, by, layout, start)
        learned = by.cos.requires_grad and torch.is_grad_enabled() and not x.is_cpu
        if learned or x.dtype not in FLOATS or x.ndim != 4 or by.cos.dtype is not torch.float32:
            return "formula"
    if _is_observed(x):
        return "formula"
    if not x.is_cpu:
        return "triton" if x.is_cuda and load_triton() is not None else "formula"
    if layout == "half":
        if x.numel() <= FEW_NUMBERS:
            return "roll"
        fits_numba = x.dtype is not torch.float16 and x.stride(-1) == 1
        return "numba" if fits_numba and load_numba() else "blocks"
    return "complex" if x.dtype is torch.float32 or x.numel() <= FEW_NUMBERS else "complex blocks"


def prepared_for(x: Heads, by: Turn, layout: Layout) -> bool:
    """True for few numbers that a table was made ready for, as in decoding: no check is left."""
    return (
        type(by) is Ready
        and type(x) is Tensor
        and x.is_cpu
        and x.dtype is torch.float32
        and not torch.is_grad_enabled()
        and by.meant == (layout, x.shape[2:])
        and x.numel() <= FEW_NUMBERS
        and not by.edited
        and not transformed()
    )


def _is_observed(x: Tensor) -> bool:
    """True if a tensor subclass, a transform or a tracer has to see the single operations."""
    return (
        type(x) not in (Tensor, nn.Parameter)
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or traced()
    )


@cache
def load_triton() -> Any:
    """The module of the CUDA kernel; None where Triton, or the C compiler it needs, is missing."""
    if find_spec("triton") is None:
        return None
    from posenc.rotation import triton_kernel

    return triton_kernel if triton_kernel.usable() else None


def load_numba() -> Any:
    """The module of the Numba kernel; None where there is none, and in a forked process."""
    return fast.load("posenc.rotation.numba_kernel")


def same_kernel_fits(q: Tensor, k: Tensor, by: Turn) -> bool:
    """True if the kernel chosen for `q` turns `k` too."""
    q_shape, k_shape = q.shape, k.shape
    return (
        q_shape[2:] == k_shape[2:]
        and q_shape[0] == k_shape[0]
        and (getattr(by, "meant", None) is not None or by.cos.shape[-3] == 1)
        and q.dtype is k.dtype
        and ((q.is_cpu and k.is_cpu) or q.device == k.device)
        and type(k) is type(q)
    )


def _check_fit(x: Tensor, by: Turn, layout: Layout, start: int | None) -> None:
    """Refuse what would broadcast in silence: each token turns by its own angles."""
    checked(layout)
    if not isinstance(x, Tensor) or not isinstance(by, Turn):
        expected = f"`x`, a tensor, and `by`, what `turn` returns, got {shown(x)} and {shown(by)}"
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
