"""Write files and folders whole or not at all: beside their place, and then by renaming."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from shutil import disk_usage

FULL = (ENOSPC, EDQUOT, EFBIG)  # errors of a disk, a quota or a limit that is reached


@contextmanager
def written_beside(out: Path, replace: bool = False) -> Iterator[Path]:
    """Yield a free path beside `out` for a new file or folder, which becomes `out` at the end.

    A file is on the disk before it is renamed. If anything fails, what was written is deleted and
    `out` stays as it was. An empty folder at `out` makes way for a folder; a file at `out` raises
    FileExistsError, also if it appeared meanwhile, unless `replace` is True.
    """
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)  # a file that a killed process left, or a link
    try:
        yield part
        if part.is_dir():
            if out.exists():
                out.rmdir()
        else:
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            if not replace:
                # Unlike a replacement, this fails for a file or a link that appeared meanwhile
                out.open("x").close()
        os.replace(part, out)
        flush_folder(out.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):
            part.unlink()
        raise


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that at any moment all of it is there or nothing, in place of an earlier one.

    Raises OSError, of a full disk with the bytes that are needed and free.
    """
    try:
        with written_beside(path, replace=True) as part, part.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise _room(error, path, len(data)) from None


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can say so."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _room(error: OSError, path: Path, needed: int) -> OSError:
    """Write the error again; of a full disk, with the bytes that are needed and free."""
    why = error.strerror or str(error)
    if error.errno in FULL:
        with suppress(OSError):
            why += f", {needed:,} bytes are needed and {disk_usage(path.parent).free:,} free"
    return OSError(error.errno, why, str(path))
