"""Load kernels compiled by Numba, if the extra `fast` is installed.

A forked process does not load kernels, because OpenMP does not support its parent's threads there.
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
    """Import a module of Numba kernels and test it; None if Numba is missing or the test fails."""
    return None if forked else _tested(kernels)


@cache
def _tested(kernels: str) -> Any:
    if find_spec("numba") is None:
        return None
    try:
        _threads_of_openmp()
        module = import_module(kernels)
        module.self_test()
    except Exception as error:
        warnings.warn(
            "posenc does not use Numba on this machine, because posenc's Numba kernels fail here:"
            f" {error}.",
            stacklevel=3,
        )
        return None
    return module


def _threads_of_openmp() -> None:
    numba = import_module("numba")
    if numba.config.THREADING_LAYER == "default":
        numba.config.THREADING_LAYER = "omp"
