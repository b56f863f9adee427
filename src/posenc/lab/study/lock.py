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

from posenc.lab.study import regular

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

NAME = "lock"
MOST = 4096  # bytes of it that are read


class Locked(ValueError):
    """Another process works in the folder; the message says which."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock inside the block. Raises Locked if another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    handle = regular.opener(path, os.O_RDWR | os.O_CREAT)
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
        with open(path, "rb") as file:
            holder = json.loads(file.read(MOST))
        return f"process {holder['pid']} on {holder['host']}"
    return "another process"
