"""Treat SIGTERM and SIGHUP as Ctrl-C, so that nothing half done is left.

    with interruptible():
        …                        a signal raises an exception, so that `finally` runs

A signal that is ignored, as SIGHUP is under nohup, stays ignored.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SIGNALS = ("SIGTERM", "SIGHUP")  # Windows lacks the second


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt inside the block when the process is asked to end.

    Python lets only the main thread handle signals; in another one this changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number, handler in before.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, _stop)
        yield
    finally:
        for number, handler in before.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay Ctrl-C and the like to the end of the block, for moves that must not be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in ("SIGINT", *SIGNALS) if hasattr(signal, name)]
    waiting: list[int] = []
    before = {n: signal.signal(n, lambda number, _: waiting.append(number)) for n in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(signal.Signals(number).name)
