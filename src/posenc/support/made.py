"""Disk cache for data that the package computes, such as measured properties of encodings.

    read("properties", "rope", modules)          None if there are no data for these modules
    keep("properties", "rope", modules, data)    store data for later calls of any process

The name of a file contains a digest of the modules on which the data depend, and of all modules of
posenc that these import, so outdated data are never read. `hatch_build.py` adds the data to `made/`
of the wheel; in a clone they are in the user's cache.
"""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from posenc.support.writing import write_whole

POSENC = Path(__file__).parent.parent
PACKAGED = POSENC / "made"
MOST_KEPT = 8  # versions of the same data that the cache keeps
IMPORT = re.compile(
    r"^[ \t]*(?:from (posenc[\w.]*) import (\([^)]*\)|[^\n]*)|import (posenc[\w.]*))", re.MULTILINE
)


def read(kind: str, name: str, modules: Iterable[str], given: str = "") -> Any:
    """Return the cached data of this kind and name, or None if the modules' source has changed.

    `given` names other inputs of the data.
    """
    file = file_name(kind, name, modules, given)
    for folder in (PACKAGED, cache_folder()):
        with suppress(OSError, ValueError):
            return json.loads((folder / file).read_text("utf-8"))
    return None


def keep(
    kind: str, name: str, modules: Iterable[str], data: Mapping[str, Any], given: str = ""
) -> None:
    """Write data to the user's cache; ignore write errors, because data can be computed again."""
    folder = cache_folder()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
        write_whole(folder / file_name(kind, name, modules, given), text.encode())
        kept = sorted(folder.glob(f"{kind}.{name}.*.json"), key=lambda file: file.stat().st_mtime)
        for old in kept[:-MOST_KEPT]:
            old.unlink()


def file_name(kind: str, name: str, modules: Iterable[str], given: str = "") -> str:
    """Return the cache file's name, which contains a digest of the modules' source."""
    return f"{kind}.{name}.{digest(modules, given)}.json"


def digest(modules: Iterable[str], given: str = "") -> str:
    """Return a digest of the source of these modules and of all posenc modules that they import."""
    left, texts = [*modules], {}
    while left:
        module = left.pop()
        if module not in texts and (source := _source(module)):
            texts[module] = source[0]
            left += source[1]
    named = [given, *(f"{module}\n{texts[module]}" for module in sorted(texts))]
    return sha256("\0".join(named).encode()).hexdigest()[:16]


@cache
def package_digest() -> str:
    """Return a digest of all files of the package, for data that depend on most of them."""
    digests = [
        f"{file.relative_to(POSENC).as_posix()}\0{sha256(file.read_bytes()).hexdigest()}"
        for file in POSENC.rglob("*.*")
        if file.is_file() and "__pycache__" not in file.parts and PACKAGED not in file.parents
    ]
    return sha256("\0".join(sorted(digests)).encode()).hexdigest()


@cache
def _source(module: str) -> tuple[str, list[str]] | None:
    """Return the digest of a module's source, and the names of the modules that it imports.

    Returns None if the module has no file.
    """
    path = POSENC.parent.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            text = file.read_text("utf-8")
            imported = []
            for origin, names, whole in IMPORT.findall(text):
                imported.append(origin or whole)
                imported += [f"{origin}.{name}" for name in re.findall(r"\w+", names)]
            return sha256(text.encode()).hexdigest(), imported
    return None


def cache_folder() -> Path:
    """Return posenc's folder in the user's cache, or the folder that `POSENC_CACHE` names."""
    if chosen := os.environ.get("POSENC_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        home = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local"))
    elif sys.platform == "darwin":
        home = Path.home() / "Library/Caches"
    else:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "posenc"
