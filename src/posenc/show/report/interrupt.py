"""Treat SIGTERM and SIGHUP like Ctrl-C, so that a stopped command can clean up.

    with interruptible():
        …                        a signal raises an exception, so that `finally` runs

Signals that were ignored before, as SIGHUP is under nohup, are still ignored.
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
    """Raise KeyboardInterrupt inside a `with` block on SIGTERM or SIGHUP.

    Only the main thread of Python can handle signals, so this has no effect in other threads.
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
    """Delay Ctrl-C, SIGTERM and SIGHUP to the end of a `with` block."""
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
