"""Import torch without the garbage collector."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Switch the garbage collector off for imports, and exempt what they make from later runs.

    Importing torch makes hundreds of thousands of objects that stay. Without this, looking through
    them again and again is a seventh of the CPU time of `posenc explore`.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
