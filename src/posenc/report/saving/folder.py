"""The folder of a report: whether one may be put there, and taking the place of the earlier one.

    index.html      the page
    results.json    the numbers, and the names of the figures
    figures         those that were asked for as files

A report is written into a folder of its own beside them, and moved in when all of it is on the
disk: first what stood there goes, the page before all else, then numbers, figures and the page come
in. So a page never stands beside the numbers of another run, wherever a run is killed; what it
leaves has a name of its own, and the next run takes it away. An error moves all of it back.

What an earlier report made is known by marks in each file, never by a list alone, and nothing is
read, written or taken away through a link.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from posenc.models.files.errors import printable
from posenc.models.files.strict import opened
from posenc.report.saving.interrupt import undisturbed

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

PAGE, NUMBERS, FIGURES = "index.html", "results.json", "figures"
MARK = '<meta name="generator" content="posenc">'
FIGURE_MARK = "posenc.report"  # in the metadata of a figure
MARKED = 2**16  # bytes at either end of a file in which its mark stands
UNFINISHED = ".posenc-"  # begins the name of a folder that a report is written into
MOST_NUMBERS = 2**25  # bytes


def reserve(out: Path, force: bool = False) -> None:
    """Make the folder, or raise OSError with a sentence if a report should not be put there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        names = sorted(entry.name for entry in out.iterdir())
        _check(out)
        strange = [name for name in names if not _ours(out, name)]
        if strange and not force:
            named = ", ".join(map(printable, strange[:3])) + (" …" if len(strange) > 3 else "")
            raise FileExistsError(
                f"{out} holds {named}, which is not an earlier report: name another folder, or pass"
                " --force to write beside it."
            )
        os.rmdir(mkdtemp(prefix=UNFINISHED, dir=out))
    except ValueError as error:  # a zero byte in the name
        raise OSError(f"{out} cannot be written to: {error}.") from None
    except OSError as error:
        if error.errno is None:
            raise
        if isinstance(error, FileExistsError):
            raise FileExistsError(f"{out} is not a folder.") from None
        raise OSError(f"{out} cannot be written to: {error.strerror}.") from None


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """Give a folder to write a report into, which takes the place of the one in `out` in the end.

    Raises OSError if something stands there that no report replaces, or another run writes there.
    """
    with _alone(out):
        for entry in list(out.iterdir()):
            if _unfinished(entry):
                shutil.rmtree(entry, ignore_errors=True)
        new = Path(mkdtemp(prefix=UNFINISHED, dir=out))
        try:
            yield new
            _swap(new, out)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _swap(new: Path, out: Path) -> None:
    """Move the report in `out` away, and that in `new` there, by renaming; undo it on an error."""
    figures = _names(new / FIGURES)
    come = [NUMBERS, *(f"{FIGURES}/{name}" for name in figures), PAGE]
    for name in come:
        _settle(new / name)
    _check(out, figures)
    old = new / "earlier"
    (old / FIGURES).mkdir(parents=True)
    if figures:
        (out / FIGURES).mkdir(exist_ok=True)
    replaced = dict.fromkeys([*_made(out), *figures])
    gone = [PAGE, *(f"{FIGURES}/{name}" for name in replaced), NUMBERS]
    moves = [(out / name, old / name) for name in gone if os.path.lexists(out / name)]
    moves += [(new / name, out / name) for name in come]
    done: list[tuple[Path, Path]] = []
    with undisturbed():
        try:
            for source, target in moves:
                os.rename(source, target)
                done.append((source, target))
        except BaseException:
            for source, target in reversed(done):
                with suppress(OSError):
                    os.rename(target, source)
            raise


def _settle(path: Path) -> None:
    """Wait until a file is on the disk, which may be full only now."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check(out: Path, figures: Sequence[str] = ()) -> None:
    """Raise OSError where something stands that no report can take the place of."""
    folder = out / FIGURES
    if figures and os.path.lexists(folder) and not _real_folder(folder):
        raise OSError(errno.ENOTDIR, f"{FIGURES} there is no folder of its own, but a link or file")
    for name in (PAGE, NUMBERS, *(f"{FIGURES}/{one}" for one in figures)):
        if _real_folder(out / name):
            raise OSError(errno.EISDIR, f"{name} there is a folder")


def _ours(out: Path, name: str) -> bool:
    """Whether an earlier report made it, or a run that was killed."""
    path = out / name
    if name == PAGE:
        return _holds(path, MARK)
    if name == NUMBERS:
        return _listed(out) is not None
    if name == FIGURES:
        return _real_folder(path) and set(_names(path)) == set(_made(out))
    return _unfinished(path)


def _unfinished(path: Path) -> bool:
    return path.name.startswith(UNFINISHED) and _real_folder(path)


def _made(out: Path) -> list[str]:
    """The figures that an earlier report lists as its own, and that say so of themselves."""
    folder, listed = out / FIGURES, _listed(out) or []
    return [n for n in _names(folder) if n in listed and _holds(folder / n, FIGURE_MARK)]


def _listed(out: Path) -> set[str] | None:
    """The figures of the report that stands there; None if what stands there is none."""
    try:
        tree = json.loads(_bytes(out / NUMBERS, MOST_NUMBERS))
        known = "posenc" in tree["provenance"]["versions"]
        return set(map(str, tree["figures"])) if known else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _names(folder: Path) -> list[str]:
    """What is in a folder, in order; nothing, where it is a link or none."""
    return sorted(os.listdir(folder)) if _real_folder(folder) else []


def _real_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _holds(path: Path, mark: str) -> bool:
    """Whether a regular file, and no link to one, has this mark near its beginning or end."""
    with suppress(OSError, ValueError):
        return mark.encode() in _bytes(path, MARKED) + _bytes(path, MARKED, end=True)
    return False


def _bytes(path: Path, most: int, end: bool = False) -> bytes:
    """What a regular file holds. Raises ValueError for anything else, OSError as reading does."""
    if path.is_symlink():
        raise ValueError(f"{path} is a link")
    with opened(path) as file:
        if end:
            file.seek(-min(most, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return file.read(most)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Raise OSError where another run is writing into the same folder."""
    if fcntl is None:
        yield
        return
    handle = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(errno.EBUSY, "another run is writing a report there") from None
        except OSError:
            pass  # there are no locks on this file system
        yield
    finally:
        os.close(handle)
