"""Load kernels compiled by Numba if the extra `fast` is installed; otherwise torch is used.

A forked process loads no kernel, because OpenMP forbids it to continue with its parent's threads.
"""

import os
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

forked = False
os.register_at_fork(after_in_child=lambda: globals().update(forked=True))


def load(kernels: str) -> Any:
    """The module of that name, checked by its own `check`; None where Numba is missing or fails."""
    return None if forked else _checked(kernels)


@cache
def _checked(kernels: str) -> Any:
    if find_spec("numba") is None:
        return None
    try:
        _threads_of_openmp()
        module = import_module(kernels)
        module.check()
    except Exception as error:
        warnings.warn(f"posenc goes without Numba, which fails: {error}.", stacklevel=3)
        return None
    return module


def _threads_of_openmp() -> None:
    numba = import_module("numba")
    if numba.config.THREADING_LAYER == "default":
        numba.config.THREADING_LAYER = "omp"
