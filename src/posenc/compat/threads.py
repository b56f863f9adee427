"""Limit the threads of torch for a while, and share work among threads of Python."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from posenc.compat import private_torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with `count` threads.

    Small work is better off with one: in each parallel region all wait for the thread that comes
    last, and on a busy machine there is always one whose core another process has.

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


# The threads among which `spread` shares its items within `alone`
_shared: ContextVar[int] = ContextVar("_shared", default=0)


@contextmanager
def alone() -> Iterator[None]:
    """Compute with one thread, and leave the others to `spread`.

    >>> before = free_threads()
    >>> with alone():
    ...     torch.get_num_threads(), free_threads() == before
    (1, True)
    """
    token = _shared.set(free_threads())
    try:
        with threads(1):
            yield
    finally:
        _shared.reset(token)


def free_threads() -> int:
    """Return the number of threads among which `spread` shares its items."""
    return _shared.get() or torch.get_num_threads()


def spread(f: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return f of each item, each computed by a Python thread of its own that starts no others.

    In each parallel region of torch the threads spin until the last one arrives, which on a busy
    machine may take milliseconds. These threads wait for each other once, and do not spin. No
    gradients are recorded. Where a mode observes torch's operations, which are seen in the caller's
    thread only, the items are computed one after the other.

    >>> spread(abs, [-1, 2])
    [1, 2]
    """
    if len(items) < 2 or private_torch.is_observed():
        return [f(item) for item in items]
    results: list[Any] = [None] * len(items)
    errors: list[BaseException] = []

    def compute(n: int) -> None:
        try:
            with torch.no_grad():
                results[n] = f(items[n])
        except BaseException as error:
            errors.append(error)

    # A new thread computes with as many threads as were set last
    with threads(1):
        others = [threading.Thread(target=compute, args=(n,)) for n in range(1, len(items))]
        for thread in others:
            thread.start()
        compute(0)
        for thread in others:
            thread.join()
    if errors:
        raise errors[0]
    return results
