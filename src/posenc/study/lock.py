"""One process at a time in the folder of a study. Nothing here imports torch: it answers at once.

The system gives the lock back when its holder ends, however it ends, so none is ever stale and no
number of a process can be mistaken for that of another.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

NAME = "lock"


class Locked(ValueError):
    """Another process works in the folder; the message says which."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock inside the block. Raises Locked if another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Locked(
                    f"{folder} is in use by {_holder(path)}: wait for it, or end it with Ctrl-C and"
                    " go on."
                ) from None
            except OSError:
                pass  # this file system has no locks
        os.truncate(handle, 0)
        os.write(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        yield
    finally:
        os.close(handle)


def _holder(path: Path) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        holder = json.loads(path.read_text("utf-8"))
        return f"process {holder['pid']} on {holder['host']}"
    return "another process"
