"""Safe access to the files of a study, whose folder may come from a stranger.

Links are not followed, because a link called `lock` would let the study overwrite its target. Pipes
and devices are rejected, because reading them may never end. Nothing here imports torch, so that a
locked folder is reported at once.
"""

import os
import stat
from collections.abc import Callable, Iterable
from hashlib import file_digest
from pathlib import Path

MOST = 2**28  # bytes of a text, or of pictures as they are packed
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


class NotRegular(ValueError):
    """Raised for a path in a study's folder that is a link, a pipe or a device."""


def check_files(*paths: Path) -> None:
    """Raise NotRegular for paths that exist and are not regular files."""
    _check(paths, stat.S_ISREG, "file")


def check_folders(*paths: Path) -> None:
    """Raise NotRegular for paths that exist and are not folders."""
    _check(paths, stat.S_ISDIR, "folder")


def opener(path: str | Path, flags: int) -> int:
    """Open a regular file. Pass this function as `opener` to Python's `open`.

    Raises NotRegular for links, pipes and devices.
    """
    check_files(Path(path))
    return os.open(path, flags | _AT_ONCE | _NO_LINK, 0o666)


def digest(path: Path) -> str:
    """Return the SHA-256 of a data file that a plan names; symbolic links are followed.

    Raises NotRegular for a device or a pipe, and ValueError for a file of more than `MOST` bytes.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE)) as file:
        _check_content(path, os.fstat(file.fileno()), MOST)
        return file_digest(file, "sha256").hexdigest()


def read_text(path: Path, most: int) -> str:
    """Read a text file in UTF-8, with or without a byte-order mark; links are followed.

    Raises NotRegular for a device or a pipe, and ValueError for more than `most` bytes.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE)) as file:
        _check_content(path, os.fstat(file.fileno()), most)
        return file.read().decode("utf-8-sig")


def is_file(path: Path) -> bool:
    """Test whether a path is a regular file and not a link to one."""
    return path.is_file() and not path.is_symlink()


def _check_content(path: Path, about: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise NotRegular(f"{path} must be a regular file, got a device or a pipe.")
    if about.st_size > most:
        raise ValueError(
            f"{path} must have at most {most:,} bytes, got {about.st_size:,}. Use a part of the"
            " file."
        )


def _check(paths: Iterable[Path], right: Callable[[int], bool], what: str) -> None:
    for path in paths:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if not right(mode):
            got = "a link" if stat.S_ISLNK(mode) else "another kind of file"
            raise NotRegular(
                f"{path} must be a regular {what} for a study to use it, got {got}. Remove {path},"
                " or name another folder."
            )
