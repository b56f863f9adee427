"""Write a report into its folder safely: check the folder, and replace an earlier report.

    index.html      the page
    results.json    the numbers, and the names of the figures
    figures         figures as files, with `--figures`
    explore.html    the explorer, which is written separately

A report is written into a temporary folder inside `out`. When all of it is on the disk, the old
files are moved away, first the page; then the new numbers, figures and last the page are moved in.
So a page is never beside the numbers of another run, even if a run is killed. The next run removes
the temporary folder of a killed run. If a move fails, all moves are undone.

Files of an earlier report are recognised by a mark in each file, never by a list alone. Links are
never followed.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from posenc.models.files.strict import opened
from posenc.show.report.interrupt import undisturbed
from posenc.support.text import printable

try:
    import fcntl
except ImportError:
    # Windows has no fcntl
    fcntl = None

PAGE, NUMBERS, FIGURES = "index.html", "results.json", "figures"
EXPLORER = "explore.html"  # a separate page to which the report links
MARK = '<meta name="generator" content="posenc">'
FIGURE_MARK = "posenc.show.report"  # the mark in the metadata of a figure
MARK_REACH = 2**16  # bytes at either end of a file that are searched for its mark
UNFINISHED = ".posenc-"  # prefix of temporary folders
MOST_NUMBERS = 2**25  # bytes


def reserve(out: Path, force: bool = False, beside: bool = False) -> None:
    """Raise OSError if a report must not, or cannot, be written to the folder `out`.

    A missing folder is not created yet, so that a command that fails later leaves no folder.

    - `force`: accept a folder with other files
    - `beside`: accept other files, but require that replaced files are of an earlier report
    """
    there = out
    try:
        while not os.path.lexists(there):
            there = there.parent
        names = sorted(entry.name for entry in there.iterdir()) if there == out else []
        _check_replaceable(out)
        replaceable = (PAGE, NUMBERS) if beside else names
        strange = [name for name in names if name in replaceable and not _is_report_part(out, name)]
        if strange and not force:
            named = ", ".join(map(printable, strange[:3])) + (" …" if len(strange) > 3 else "")
            remedy = "" if beside else ", or pass --force to write beside it"
            raise FileExistsError(
                f"{out} holds {named}, which is not an earlier report. Use another folder{remedy}."
            )
        os.rmdir(mkdtemp(prefix=UNFINISHED, dir=there))
    except ValueError as error:  # the name contains a zero byte
        raise OSError(f"{out} cannot be written to: {error}.") from None
    except OSError as error:
        if error.errno is None:
            raise
        if isinstance(error, NotADirectoryError) and there == out:
            raise NotADirectoryError(f"{out} is not a folder.") from None
        raise OSError(f"{out} cannot be written to: {error.strerror}.") from None


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """Yield a temporary folder for a report; at the end, move the report into `out`.

    Raises OSError if `out` has files that a report must not replace, or if another run is writing
    to it.
    """
    if not out.is_dir():
        out.mkdir(parents=True)
    with _locked(out):
        for entry in list(out.iterdir()):
            if _unfinished(entry):
                shutil.rmtree(entry, ignore_errors=True)
        new = Path(mkdtemp(prefix=UNFINISHED, dir=out))
        try:
            yield new
            _replace_report(new, out)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _replace_report(new: Path, out: Path) -> None:
    """Move the old report's files out of `out`, and the new report's files into it.

    All renames are undone on an error.
    """
    figures = _entries(new / FIGURES)
    come = [NUMBERS, *(f"{FIGURES}/{name}" for name in figures), PAGE]
    for name in come:
        _flush_to_disk(new / name)
    _check_replaceable(out, figures)
    old = new / "earlier"
    (old / FIGURES).mkdir(parents=True)
    if figures:
        (out / FIGURES).mkdir(exist_ok=True)
    replaced = dict.fromkeys([*_known_figures(out), *figures])
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


def _flush_to_disk(path: Path) -> None:
    """Wait until a file is on the disk, because a full disk may raise an error only now."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_replaceable(out: Path, figures: Sequence[str] = ()) -> None:
    """Raise OSError if a file of the report would replace a folder, or a folder a file."""
    folder = out / FIGURES
    if figures and os.path.lexists(folder) and not _real_folder(folder):
        raise OSError(errno.ENOTDIR, f"its {FIGURES} is a link or a file instead of a folder")
    for name in (PAGE, NUMBERS, *(f"{FIGURES}/{figure}" for figure in figures)):
        if _real_folder(out / name):
            raise OSError(errno.EISDIR, f"its {name} is a folder")


def _is_report_part(out: Path, name: str) -> bool:
    """Test whether `name` in the folder `out` belongs to an earlier or interrupted report."""
    path = out / name
    if name in (PAGE, EXPLORER):
        return has_mark(path, MARK)
    if name == NUMBERS:
        return _figures_of_report(out) is not None
    if name == FIGURES:
        return _real_folder(path) and set(_entries(path)) == set(_known_figures(out))
    return _unfinished(path)


def _unfinished(path: Path) -> bool:
    return path.name.startswith(UNFINISHED) and _real_folder(path)


def _known_figures(out: Path) -> list[str]:
    """Return the figure files of an earlier report in `out` that have posenc's mark."""
    folder, listed = out / FIGURES, _figures_of_report(out) or []
    return [n for n in _entries(folder) if n in listed and has_mark(folder / n, FIGURE_MARK)]


def _figures_of_report(out: Path) -> set[str] | None:
    """Return the names of figures in the results.json in `out`, or None if there is no report."""
    try:
        tree = json.loads(_read_bytes(out / NUMBERS, MOST_NUMBERS))
        known = "posenc" in tree["provenance"]["versions"]
        return set(map(str, tree["figures"])) if known else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _entries(folder: Path) -> list[str]:
    """Return the sorted names in a folder; none for a link or a missing folder."""
    return sorted(os.listdir(folder)) if _real_folder(folder) else []


def _real_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def has_mark(path: Path, mark: str) -> bool:
    """Test whether a regular file, not a link, has `mark` near its beginning or end."""
    with suppress(OSError, ValueError):
        return mark.encode() in _read_bytes(path, MARK_REACH) + _read_bytes(
            path, MARK_REACH, end=True
        )
    return False


def _read_bytes(path: Path, limit: int, end: bool = False) -> bytes:
    """Read the first or last bytes of a regular file. Raises ValueError for other files."""
    if path.is_symlink():
        raise ValueError(f"{path} is a link")
    with opened(path) as file:
        if end:
            file.seek(-min(limit, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return file.read(limit)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Lock the folder. Raises OSError if another run is writing into it."""
    if fcntl is None:
        yield
        return
    handle = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(errno.EBUSY, "another process is writing a report there") from None
        except OSError:
            # This file system has no locks
            pass
        yield
    finally:
        os.close(handle)
