"""Private torch APIs, each with a fallback for versions that lack it.

If a version cannot report active transforms, every function counts as transformed. Then plain
formulas are used, which are correct everywhere but slower.
"""

import ctypes
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

F = TypeVar("F", bound=Callable[..., Any])
VERSION = tuple(int(number) for number in torch.__version__.split(".")[:2])  # (2, 13)


def optional_attr(path: str, otherwise: Any) -> Any:
    """Return the attribute of torch with this dotted path, or `otherwise` if there is none."""
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return otherwise if found is None else found


# True within `torch.jit.trace`; a version without this function has no tracing
is_traced: Callable[[], bool] = optional_attr("_C._is_tracing", lambda: False)
# True within grad, vmap, jvp and other transforms of torch.func
transforming: Callable[[], bool] = optional_attr(
    "_C._are_functorch_transforms_active", lambda: True
)
# True for a tensor that a transform has wrapped
is_wrapped: Callable[[Tensor], bool] = optional_attr(
    "_C._functorch.is_functorch_wrapped_tensor", lambda x: True
)
_transforms: Callable[[], list[Any] | None] = optional_attr(
    "_C._functorch.get_interpreter_stack", lambda: None
)
_GRAD = optional_attr("_C._functorch.TransformType.Grad", None)


def takes_one_gradient() -> bool:
    """Return True if the only active transform is one `torch.func.grad`."""
    transforms = _transforms() or ()
    return len(transforms) == 1 and transforms[0].key() == _GRAD


# The nesting level of `forward_ad.dual_level`; below 0 outside
forward_level: Callable[[], int] = partial(getattr, forward_ad, "_current_level", 0)

# Attention on the CPU with log-sum-exps, and its backward; None in versions that lack them
flash: Any = optional_attr("_scaled_dot_product_flash_attention_for_cpu", None)
flash_backward: Any = optional_attr(
    "ops.aten._scaled_dot_product_flash_attention_for_cpu_backward", None
)


def _assert_now(condition: Tensor, message: str) -> None:
    if not condition:
        raise RuntimeError(message)


# Raise an error within a compiled graph if the condition is False
assert_async: Callable[[Tensor, str], None] = optional_attr("_assert_async", _assert_now)


# Functions on all values in nested lists, tuples and dictionaries
tree_map: Callable[[Callable[[Any], Any], Any], Any] = optional_attr("utils._pytree.tree_map", None)
tree_leaves: Callable[[Any], list[Any]] = optional_attr("utils._pytree.tree_leaves", None)


def tensors_in(tree: Any) -> list[Tensor]:
    """Return the tensors in nested lists, tuples and dictionaries."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


# The number of active modes that intercept operations of torch
_modes: Callable[[], int] = optional_attr("_C._len_torch_dispatch_stack", lambda: 1)


def is_observed() -> bool:
    """Return True inside a dispatch mode, which intercepts operations of torch."""
    return _modes() > 0


_Region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _openmp() -> Any:
    """Return the function that starts a parallel region of the OpenMP library of torch.

    The result is None if torch uses other threads, or an OpenMP library without GCC's function.
    """
    path, kind = (
        optional_attr("_C.__file__", None),
        optional_attr("__config__.parallel_info", str)(),
    )
    if path is None or "backend: OpenMP" not in kind:
        return None
    begin = getattr(ctypes.CDLL(path), "GOMP_parallel", None)
    if begin is not None:
        begin.argtypes, begin.restype = (_Region, ctypes.c_void_p, *[ctypes.c_uint] * 2), None
    return begin


_parallel = _openmp()


def in_region(f: Callable[[], None], count: int) -> None:
    """Call f in `count` concurrent threads; f must neither raise errors nor start threads.

    These are threads of torch's OpenMP, which may start fewer; without it, threads of Python.
    """
    if _parallel is not None:
        _parallel(_Region(lambda _: f()), None, count, 0)
        return
    others = [threading.Thread(target=f) for _ in range(count - 1)]
    for thread in others:
        thread.start()
    f()
    for thread in others:
        thread.join()


class _NoMode:
    def __enter__(self) -> None:
        raise RuntimeError(
            "counting operations needs `torch.utils._python_dispatch.TorchDispatchMode`, which"
            f" torch {torch.__version__} lacks. Install torch 2.13."
        )


class DispatchMode(optional_attr("utils._python_dispatch.TorchDispatchMode", _NoMode)):
    """The base class of modes that intercept operations of torch."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, which keeps torch from importing its compiler.

        torch would use the compiler only to exclude this mode from compilation.
        """
        return False


def with_recompile_limit(compiled: Callable[..., Any], limit: int) -> Callable[..., Any]:
    """Limit how often torch may recompile a compiled function."""
    patch = optional_attr("_dynamo.config.patch", None)
    known = optional_attr("_dynamo.config.recompile_limit", None)
    return compiled if patch is None or known is None else patch(recompile_limit=limit)(compiled)


def not_compiled_before_2_13(function: F) -> F:
    """Exclude a function from torch.compile before torch 2.13, where compiling it crashes.

    `fullgraph=True` raises an error there, from torch 2.9 on with the reason below.
    """
    if VERSION >= (2, 13):
        return function
    why = {"reason": "posenc's `attend` compiles from torch 2.13 on"} if VERSION > (2, 8) else {}
    return torch.compiler.disable(function, **why)  # type: ignore


def make_pytree(named_tuple: type) -> None:
    """Register a named tuple as a pytree, for versions of torch that do not do this.

    Since version 2.9, torch registers named tuples with a second base class.
    """
    if VERSION < (2, 9):
        from torch.utils._pytree import register_pytree_node

        register_pytree_node(
            named_tuple, lambda fields: ([*fields], None), lambda fields, _: named_tuple(*fields)
        )
