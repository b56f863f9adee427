"""The files of a study's folder, which may come from somebody else: links are not followed.

A link called `lock` would have the study write over whatever it leads to, and a pipe wait for ever.
Nothing here imports torch: a lock answers at once.
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
    """A link, a pipe or a device stands where a study keeps a file; the message says where."""


def check_files(*paths: Path) -> None:
    """Refuse those of the paths that are there and no regular file."""
    _check(paths, stat.S_ISREG, "file")


def check_folders(*paths: Path) -> None:
    """Refuse those of the paths that are there and no folder."""
    _check(paths, stat.S_ISDIR, "folder")


def opener(path: str | Path, flags: int) -> int:
    """Open a regular file, as `open` asks an opener to. Raises NotRegular for others."""
    check_files(Path(path))
    return os.open(path, flags | _AT_ONCE | _NO_LINK, 0o666)


def digest(path: Path) -> str:
    """The SHA-256 of a file that a study is made of; a link to one is followed.

    Raises NotRegular for a device or a pipe, ValueError for more bytes than any such file has.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE)) as file:
        _check_content(path, os.fstat(file.fileno()), MOST)
        return file_digest(file, "sha256").hexdigest()


def text(path: Path, most: int) -> str:
    """The text of a file in UTF-8, marked as that or not; a link to one is followed.

    Raises NotRegular for a device or a pipe, ValueError for more bytes than `most`.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _AT_ONCE)) as file:
        _check_content(path, os.fstat(file.fileno()), most)
        return file.read().decode("utf-8-sig")


def is_file(path: Path) -> bool:
    """Test whether it is a regular file, and no link to one."""
    return path.is_file() and not path.is_symlink()


def _check_content(path: Path, about: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise NotRegular(f"{path} must be a regular file, it is a device or a pipe.")
    if about.st_size > most:
        raise ValueError(
            f"{path} must have at most {most:,} bytes, it has {about.st_size:,}: take a part."
        )


def _check(paths: Iterable[Path], right: Callable[[int], bool], what: str) -> None:
    for path in paths:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if not right(mode):
            got = "a link" if stat.S_ISLNK(mode) else f"no {what}"
            raise NotRegular(
                f"{path} must be a regular {what} for a study to use it, it is {got}: remove it, or"
                " name another folder."
            )
