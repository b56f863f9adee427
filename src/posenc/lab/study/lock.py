"""A lock on the folder of a study, so that one process at a time writes there.

The operating system releases the lock when its holder ends, even if it is killed, so no lock is
ever stale. Nothing here imports torch, so that a locked folder is reported at once.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from posenc.lab.study import safe_files

NAME = "lock"
MOST = 4096  # bytes of the lock file that are read


class Locked(ValueError):
    """Raised if another process works in a study's folder; the message names the process."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a study's folder inside the `with` block. Raises Locked if another process holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise safe_files.NotRegular(
            f"the folder of a study must be a folder, got {folder}, a file. Name a folder."
        ) from None
    path = folder / NAME
    safe_files.check_files(path)
    # A soft lock, which is only a file, would survive a process that is killed
    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise Locked(
            f"{folder} is in use by {_holder(path)}. Wait until that command ends, or end that"
            " command with Ctrl-C. Then run this command again."
        ) from None
    except OSError:
        # This file system has no locks; any other error is raised by `open` below
        pass
    try:
        with open(path, "w", opener=safe_files.opener) as file:
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
