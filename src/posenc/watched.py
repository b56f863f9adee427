"""Who looks on: a compiler or a transform of functions, for whom tensors are not numbers."""

import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack  # type: ignore
from torch.autograd import forward_ad

from posenc.positions import visible


def readable(*tensors: Tensor) -> bool:
    """Whether looking at their values costs nothing: no device to wait for, nothing traced."""
    return all([x.is_cpu for x in tensors]) and visible(*tensors)


def beyond_gradients() -> bool:
    """Whether more is asked for than first gradients, which is all that torch's kernels have.

    That is forward derivatives, mapping over tensors, and transforms within transforms.
    """
    if torch.compiler.is_compiling():
        return False
    if forward_ad._current_level >= 0:
        return True
    if not torch._C._are_functorch_transforms_active():
        return False
    stack = get_interpreter_stack() or ()
    return len(stack) > 1 or any(one.key() != TransformType.Grad for one in stack)
