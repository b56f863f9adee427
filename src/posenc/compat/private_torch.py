"""Private torch APIs, each with a fallback for versions that lack it.

Where a version cannot report which transforms are active, every function counts as transformed, and
plain formulas are used: they are correct everywhere, but slower.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

F = TypeVar("F", bound=Callable[..., Any])
VERSION = tuple(int(number) for number in torch.__version__.split(".")[:2])  # (2, 13)


def optional_attr(path: str, otherwise: Any) -> Any:
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return otherwise if found is None else found


# True within `torch.jit.trace`; a torch that has it no more does not trace
is_traced: Callable[[], bool] = optional_attr("jit.is_tracing", lambda: False)
# True within grad, vmap, jvp and their kin
transforming: Callable[[], bool] = optional_attr(
    "_C._are_functorch_transforms_active", lambda: True
)
# True of a tensor that one of them has wrapped
is_wrapped: Callable[[Tensor], bool] = optional_attr(
    "_C._functorch.is_functorch_wrapped_tensor", lambda x: True
)
_transforms: Callable[[], list[Any] | None] = optional_attr(
    "_C._functorch.get_interpreter_stack", lambda: None
)
_GRAD = optional_attr("_C._functorch.TransformType.Grad", None)


def takes_one_gradient() -> bool:
    """True if one transform is at work, and it is grad."""
    transforms = _transforms() or ()
    return len(transforms) == 1 and transforms[0].key() == _GRAD


# The level of forward derivatives, `forward_ad.dual_level`; below 0 outside of them
forward_level: Callable[[], int] = partial(getattr, forward_ad, "_current_level", 0)

# Attention on the CPU with its log-sum-exps, and its gradients; None: nothing can be built on them
flash: Any = optional_attr("_scaled_dot_product_flash_attention_for_cpu", None)
flash_backward: Any = optional_attr(
    "ops.aten._scaled_dot_product_flash_attention_for_cpu_backward", None
)


def _assert_now(condition: Tensor, message: str) -> None:
    if not condition:
        raise RuntimeError(message)


# Fail in a compiled graph, without leaving it, where the condition turns out False
assert_async: Callable[[Tensor, str], None] = optional_attr("_assert_async", _assert_now)


# The number of modes in which each operation of torch is seen
_modes: Callable[[], int] = optional_attr("_C._len_torch_dispatch_stack", lambda: 1)


def is_observed() -> bool:
    """Return True within a mode that sees each operation of torch."""
    return _modes() > 0


class _NoMode:
    def __enter__(self) -> None:
        raise RuntimeError(
            f"counting operations takes torch's `TorchDispatchMode`, which is not where it was in"
            f" torch {torch.__version__}: install torch 2.13."
        )


# A context in which each operation of torch is seen
DispatchMode: Any = optional_attr("utils._python_dispatch.TorchDispatchMode", _NoMode)


def with_recompile_limit(compiled: Callable[..., Any], limit: int) -> Callable[..., Any]:
    """Let a compiled function be compiled so many times before torch gives up on it."""
    patch = optional_attr("_dynamo.config.patch", None)
    known = optional_attr("_dynamo.config.recompile_limit", None)
    return compiled if patch is None or known is None else patch(recompile_limit=limit)(compiled)


def not_compiled_before_2_13(function: F) -> F:
    """Leave a function out of what an old torch compiles, which dies within it: it runs as it is.

    `fullgraph=True` is refused there, by torch 2.9 and later in the words below.
    """
    if VERSION >= (2, 13):
        return function
    why = {"reason": "posenc's `attend` compiles from torch 2.13 on"} if VERSION > (2, 8) else {}
    return torch.compiler.disable(function, **why)  # type: ignore


def make_pytree(named_tuple: type) -> None:
    """Have torch look into a named tuple with a base of its own, as it does since 2.9."""
    if VERSION < (2, 9):
        from torch.utils._pytree import register_pytree_node

        register_pytree_node(
            named_tuple, lambda fields: ([*fields], None), lambda fields, _: named_tuple(*fields)
        )
