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

from filelock import FileLock, Timeout

from posenc.lab.study import regular

NAME = "lock"
MOST = 4096  # bytes of it that are read


class Locked(ValueError):
    """Another process works in the folder; the message says which."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock inside the block. Raises Locked if another process holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise regular.NotRegular(f"{folder} is a file: name a folder for the study.") from None
    path = folder / NAME
    regular.check_files(path)
    # A file in the stead of a lock would outlive a holder that is killed
    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise Locked(
            f"{folder} is in use by {_holder(path)}: wait for it, or end it with Ctrl-C and go on."
        ) from None
    except OSError:
        # This file system has no locks; what else may be wrong with the file, `open` says
        pass
    try:
        with open(path, "w", opener=regular.opener) as file:
            json.dump({"pid": os.getpid(), "host": socket.gethostname()}, file)
        yield
    finally:
        lock.release()


def _holder(path: Path) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        with open(path, "rb") as file:
            holder = json.loads(file.read(MOST))
        return f"process {holder['pid']} on {holder['host']}"
    return "another process"
