"""Write files and folders atomically: under a temporary name, which is then renamed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from shutil import disk_usage

FULL = (ENOSPC, EDQUOT, EFBIG)  # errors of a full disk, an exceeded quota or file size limit


@contextmanager
def written_beside(out: Path, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `out`, and rename the file or folder to `out` at the end.

    A file is flushed to the disk before it is renamed. After an error the temporary file or folder
    is deleted and `out` is unchanged. A new folder replaces an empty folder at `out`. An existing
    file raises FileExistsError unless `replace` is True, even if it was created in the meantime.
    """
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    # Remove a file of a killed process, or a link
    part.unlink(missing_ok=True)
    try:
        yield part
        if part.is_dir():
            if out.exists():
                out.rmdir()
        else:
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            if not replace:
                # Unlike os.replace, this fails for a file or a link created in the meantime
                out.open("x").close()
        os.replace(part, out)
        flush_folder(out.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):
            part.unlink()
        raise


def write_whole(path: Path, data: bytes) -> None:
    """Write or replace a file atomically, so that no reader finds an incomplete file.

    Raises OSError, which states the needed and free bytes if the disk is full.
    """
    try:
        with written_beside(path, replace=True) as part, part.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise _room(error, path, len(data)) from None


def flush_folder(folder: Path) -> None:
    """Flush the entries of a folder to the disk, on systems that support it."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _room(error: OSError, path: Path, needed: int) -> OSError:
    """Return an error that names the path and, if the disk is full, the needed and free bytes."""
    why = error.strerror or str(error)
    if error.errno in FULL:
        with suppress(OSError):
            why += f", {needed:,} bytes are needed and {disk_usage(path.parent).free:,} free"
    return OSError(error.errno, why, str(path))
