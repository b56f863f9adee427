"""Detect compilers, tracers and torch.func transforms, under which tensors have no values."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from posenc.compat import private_torch


def traced() -> bool:
    """Return True while torch compiles, exports or traces, which makes tensors symbolic."""
    return is_compiling() or private_torch.is_traced() or _recording


def transformed() -> bool:
    """Return True while torch traces, or within torch.func transforms: grad, vmap, jvp."""
    return traced() or private_torch.transforming() or private_torch.forward_level() >= 0


def unwrapped(x: Tensor) -> bool:
    """Return True for a plain Tensor or Parameter that no torch.func transform has wrapped."""
    if type(x) is not Tensor and type(x) is not nn.Parameter:
        return False
    return not (private_torch.transforming() and private_torch.is_wrapped(x))


# True while operations are recorded
_recording = False


@contextmanager
def recording() -> Iterator[None]:
    """Treat every tensor as symbolic within a context, so that no values are read."""
    global _recording
    before, _recording = _recording, True
    try:
        yield
    finally:
        _recording = before


def exporting_onnx() -> bool:
    """Return True while torch exports, possibly to ONNX, which lacks matrix_exp and inverse."""
    return torch.compiler.is_exporting()


def is_eager_cpu(*tensors: Tensor) -> bool:
    """Return True if all tensors are plain ones on the CPU, not traced or wrapped by torch.func."""
    if is_compiling() or private_torch.is_traced() or _recording:  # `traced`, without its call
        return False
    may_wrap = private_torch.transforming()
    for x in tensors:
        if not x.is_cpu or (type(x) is not Tensor and type(x) is not nn.Parameter):
            return False
        if may_wrap and private_torch.is_wrapped(x):
            return False
    return True


def has_values(*tensors: Tensor) -> bool:
    """Return True if the values of tensors can be read, possibly after waiting for a device.

    Traced, wrapped, meta and fake tensors have no values, and reading is forbidden while a CUDA
    graph is captured.
    """
    return not traced() and all(
        unwrapped(x)
        and not x.is_meta
        and not (x.is_cuda and torch.cuda.is_current_stream_capturing())
        for x in tensors
    )


def beyond_gradients() -> bool:
    """Return True under torch.func transforms that torch's attention kernels do not support.

    These are forward derivatives (jvp), vmap, and nested transforms.
    """
    if is_compiling():
        return False
    if private_torch.forward_level() >= 0:
        return True
    return private_torch.transforming() and not private_torch.takes_one_gradient()


def fits_cpu_kernels(*tensors: Tensor) -> bool:
    """Return True if torch's attention kernels for the CPU can be called with these tensors."""
    # `beyond_gradients`, without its call
    if not is_eager_cpu(*tensors) or private_torch.forward_level() >= 0:
        return False
    return not private_torch.transforming() or private_torch.takes_one_gradient()


def no_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Disable autocast within a context, because 16 bits are too few for sums and rotations."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


WIDE = (torch.float32, torch.float64)


def upcast(x: Tensor) -> Tensor:
    """Convert x to float32 or wider, because 16 bits cannot distinguish close distances."""
    return x if x.dtype in WIDE else x.to(torch.promote_types(x.dtype, torch.float32))
