"""Detect compilers, tracers and transforms of functions, for which tensors are not numbers."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from posenc.compat import private_torch


def traced() -> bool:
    """True while torch compiles, exports or traces: every tensor stands for others of its kind."""
    return is_compiling() or private_torch.is_traced()


def transformed() -> bool:
    """True while torch traces, or transforms functions: of grad, vmap, jvp."""
    return traced() or private_torch.transforming() or private_torch.forward_level() >= 0


def unwrapped(x: Tensor) -> bool:
    """True of tensors and parameters of torch's own classes that no transform wraps."""
    if type(x) is not Tensor and type(x) is not nn.Parameter:
        return False
    return not (private_torch.transforming() and private_torch.is_wrapped(x))


# True while exporting for an interpreter that has matrix_exp and inverse as operations.
_matrix_functions = False


@contextmanager
def with_matrix_functions() -> Iterator[None]:
    """Export matrix_exp and inverse as single operations, which the page has and ONNX lacks."""
    global _matrix_functions
    before, _matrix_functions = _matrix_functions, True
    try:
        yield
    finally:
        _matrix_functions = before


def exporting_onnx() -> bool:
    """True where a graph is exported that may be ONNX's, which multiplies matrices and no more."""
    return torch.compiler.is_exporting() and not _matrix_functions


def is_eager_cpu(*tensors: Tensor) -> bool:
    """True if reading their values costs nothing: no device to wait for, nothing traced."""
    if is_compiling() or private_torch.is_traced():
        return False
    may_wrap = private_torch.transforming()
    for x in tensors:
        if not x.is_cpu or (type(x) is not Tensor and type(x) is not nn.Parameter):
            return False
        if may_wrap and private_torch.is_wrapped(x):
            return False
    return True


def has_values(*tensors: Tensor) -> bool:
    """True if they have values to read, whatever that costs: nothing traced, wrapped, meta, fake.

    A graph of CUDA that is being captured must not wait for a value either.
    """
    return not traced() and all(
        unwrapped(x)
        and not x.is_meta
        and not (x.is_cuda and torch.cuda.is_current_stream_capturing())
        for x in tensors
    )


def beyond_gradients() -> bool:
    """True under forward derivatives, mapping over tensors, and transforms within transforms.

    Torch's attention kernels have first gradients only.
    """
    if is_compiling():
        return False
    if private_torch.forward_level() >= 0:
        return True
    return private_torch.transforming() and not private_torch.takes_one_gradient()


def no_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Switch autocast off within: in 16 bits, sums and rotations would lose their digits."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


def upcast(x: Tensor) -> Tensor:
    """Convert x to float32 at least: in 16 bits, distances that differ become alike."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
