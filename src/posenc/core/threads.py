"""So many threads of torch for a while, and those that the caller had afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
