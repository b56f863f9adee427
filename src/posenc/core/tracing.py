"""Detect compilers, tracers and transforms of functions, for which tensors are not numbers."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import (  # type: ignore
    TransformType,
    get_interpreter_stack,
    is_functorch_wrapped_tensor,
)
from torch.autograd import forward_ad


def readable(*tensors: Tensor) -> bool:
    """True if reading their values costs nothing: no device to wait for, nothing traced."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return False
    transformed = torch._C._are_functorch_transforms_active()
    for x in tensors:
        plain = type(x) is Tensor or type(x) is nn.Parameter
        if not (plain and x.is_cpu) or (transformed and is_functorch_wrapped_tensor(x)):
            return False
    return True


def beyond_gradients() -> bool:
    """True under forward derivatives, mapping over tensors, and transforms within transforms.

    Torch's attention kernels have first gradients only.
    """
    if torch.compiler.is_compiling():
        return False
    if forward_ad._current_level >= 0:
        return True
    if not torch._C._are_functorch_transforms_active():
        return False
    stack = get_interpreter_stack() or ()
    return len(stack) > 1 or any(interpreter.key() != TransformType.Grad for interpreter in stack)


def in_full(x: Tensor) -> AbstractContextManager[Any]:
    """Switch autocast off within: in 16 bits, sums and rotations would lose their digits."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)
