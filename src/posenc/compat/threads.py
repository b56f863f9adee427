"""Set torch's thread count temporarily, and share work among Python threads."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from posenc.compat import private_torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set torch's thread count within a context.

    One thread is faster for small work on a busy machine: in each parallel region all threads wait
    for the last one, whose core another process may use.

    >>> with threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# The number of threads of `spread` within `alone`
_shared: ContextVar[int] = ContextVar("_shared", default=0)


@contextmanager
def alone() -> Iterator[None]:
    """Limit torch to one thread within a context, where `spread` may use the other threads.

    >>> with threads(2), alone():
    ...     torch.get_num_threads(), free_threads()
    (1, 2)
    """
    token = _shared.set(_shared.get() or torch.get_num_threads())
    try:
        with threads(1):
            yield
    finally:
        _shared.reset(token)


def free_threads() -> int:
    """Return the number of threads that `spread` can use: 1 outside of `alone`."""
    return _shared.get() or 1


def spread(f: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Apply f to each item in parallel threads, within a single parallel region of OpenMP.

    In each parallel region of torch, threads spin until the last one arrives, which can take
    milliseconds on a busy machine. They go on spinning for milliseconds after the region, so
    threads of another kind would have to share their cores with them. No gradients are recorded.
    Modes intercept operations in the caller's thread only, so within a mode the items are computed
    one after another.

    >>> spread(abs, [-1, 2])
    [1, 2]
    """
    if len(items) < 2 or private_torch.is_observed():
        return [f(item) for item in items]
    results: list[Any] = [None] * len(items)
    errors: list[BaseException] = []
    # Each thread ends when it receives None; the region may have fewer threads than items
    left = deque([*range(len(items)), *[None] * len(items)])

    def compute() -> None:
        try:
            while (n := left.popleft()) is not None:
                with torch.no_grad():
                    results[n] = f(items[n])
        except BaseException as error:
            errors.append(error)

    # A new thread inherits the thread count that was set last
    with threads(1):
        private_torch.in_region(compute, len(items))
    if errors:
        raise errors[0]
    return results
