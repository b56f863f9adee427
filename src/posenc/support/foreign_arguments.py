"""Reject argument names of other libraries; the error names posenc's own argument."""

import tomllib
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_TABLES = tomllib.loads(Path(__file__).with_name("foreign_arguments.toml").read_text("utf-8"))
ATTENTION, LAYER, LAYER_CALL = (_TABLES[name] for name in ("attention", "layer", "layer_call"))


def reject_foreign_names(names: Mapping[str, str]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function to reject argument names of other libraries, with a remedy for each.

    >>> @reject_foreign_names({"attn_mask": "Pass `mask`"})
    ... def attend(q, mask=None): ...
    >>> attend(1, attn_mask=2)
    Traceback (most recent call last):
    TypeError: `attend` has no argument `attn_mask`. Pass `mask`.
    """

    def decorate(f: Callable[P, T]) -> Callable[P, T]:
        strange = names.keys() - signature(f).parameters.keys()
        called = f.__qualname__.removesuffix(".__init__").removesuffix(".forward")

        @wraps(f)
        def checked(*args: P.args, **named: P.kwargs) -> T:
            for name in named:
                if name in strange:
                    raise TypeError(f"`{called}` has no argument `{name}`. {names[name]}.")
            return f(*args, **named)

        return checked

    return decorate
