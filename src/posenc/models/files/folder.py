"""Find the config and the weights in a model folder, and reject files that are unsafe to read.

The first line of this table that fits decides which weights are used:

    in the folder                  weights
    *.safetensors.index.json       the shards that it names
    *.safetensors                  model.safetensors if it exists, otherwise all of these
    *.gguf.index.json, *.gguf      the same for GGUF
    *.bin, *.pt, …                 none: opening them raises, because loading pickle can run code

Files outside the folder and Python code are never read.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PureWindowsPath
from typing import Any, Literal, get_args

from posenc.models.files.errors import ModelError
from posenc.models.files.strict import opened, read_json
from posenc.support.text import printable

__all__ = ["ModelFiles", "find_files", "inside", "read_json"]

MOST_ENTRIES = 10_000  # entries of a folder

Kind = Literal["safetensors", "gguf"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
NO_PICKLE = "pickle is never loaded, as it can run code; convert it to safetensors"


@dataclass(frozen=True)
class ModelFiles:
    """Paths of a model's files.

    `weights` may be a single index file, which names the shards. It may also be pickles.
    """

    root: Path
    config: Path | None
    weights: tuple[Path, ...]
    format: Kind | None  # None: no readable weights
    notes: tuple[str, ...]
    values: Mapping[str, Any] | None = None  # parsed config


def find_files(path: Path) -> ModelFiles:
    """Find the files of a model at `path`: a config, a file of weights, or a folder with either."""
    if os.path.isdir(path):
        return _folder(path)
    opened(path).close()
    root = path.parent
    if path.suffix == ".json" and not path.name.endswith(".index.json"):
        return _found(root, path, (), None)
    config = inside(root, "config.json") if (root / "config.json").exists() else None
    if path.suffix in PICKLES:
        return _found(root, config, (path,), None, [path.name])
    return _found(root, config, (path,), _kind(path))


def _found(
    root: Path,
    config: Path | None,
    weights: tuple[Path, ...],
    kind: Kind | None,
    remarkable: Iterable[str] = (),
) -> ModelFiles:
    """Return a `ModelFiles` with the parsed config, and notes on code and pickles, never loaded."""
    values = None if config is None else read_json(config)
    notes = [*_remarks(remarkable)]
    if config is not None and values is not None and "auto_map" in values:
        notes.append(
            f"{printable(config.name)}:auto_map names code in the folder, which posenc never runs"
        )
    return ModelFiles(root, config, weights, kind, tuple(notes), values)


def _kind(path: Path) -> Kind:
    for kind in KINDS:
        if path.name.endswith((f".{kind}", f".{kind}.index.json")):
            return kind
    with opened(path) as file:
        # Some GGUF files have no suffix, such as the first of several parts
        if file.read(4) == b"GGUF":
            return "gguf"
    raise ModelError(path, "", "has an unknown format", allowed=".json, .safetensors, .gguf")


def _folder(root: Path) -> ModelFiles:
    names = _names(root)
    config = inside(root, "config.json") if "config.json" in names else None
    code = [name for name in names if name.endswith(".py")]
    for kind in KINDS:
        weights = _whole_model(
            [name for name in names if name.endswith(f".{kind}.index.json")], kind
        )
        weights = weights[:1] or _whole_model(
            [name for name in names if name.endswith(f".{kind}")], kind
        )
        if weights:
            return _found(root, config, tuple(inside(root, n) for n in weights), kind, code)
    pickles = [name for name in names if name.endswith(PICKLES)]
    if config is None and not pickles:
        raise ModelError(
            root, "", "contains no config.json and no weights", allowed="*.safetensors, *.gguf"
        )
    return _found(root, config, tuple(root / name for name in pickles), None, code + pickles)


def _names(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in islice(entries, MOST_ENTRIES + 1))
    except OSError as error:
        raise ModelError(root, "", f"cannot be read: {error.strerror}") from None
    if len(names) > MOST_ENTRIES:
        raise ModelError(
            root,
            "",
            f"contains over {MOST_ENTRIES} files, too many for a model. Pass a model folder",
        )
    return names


def _whole_model(names: list[str], kind: str) -> list[str]:
    """Return the standard names in `names`, such as model.safetensors, or all if none is standard.

    Other files are variants of the same weights.
    """
    usual = [name for name in (f"model.{kind}.index.json", f"model.{kind}") if name in names]
    return usual or names


def _remarks(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        f"{printable(name)} is in the folder; "
        + ("code from a model folder is never run" if name.endswith(".py") else NO_PICKLE)
        for name in names
    )


def inside(root: Path, name: str, named_by: str | Path = "", key: str = "") -> Path:
    """Return the path of the regular file `name` below `root`.

    Raises ModelError, with the file `named_by` and its `key`, for a path that leads outside.
    Symbolic links must end below `root`. In the cache of the Hugging Face hub they may also end in
    `blobs` of the same repository, to which `models--*/snapshots/…` links.
    """
    real_root = Path(os.path.realpath(root))
    # PureWindowsPath splits at both kinds of slash, and recognises drives
    windows = PureWindowsPath(name)
    if not name or "\0" in name or windows.drive or windows.root or ".." in windows.parts:
        raise ModelError(
            named_by or real_root, key, "names a file outside the folder", name, "a file below it"
        )
    path = root / name
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(home) for home in (real_root, *_blobs(real_root))):
        raise ModelError(named_by or real_root, key, "links to a file outside the folder", name)
    opened(path).close()
    return path


def _blobs(root: Path) -> list[Path]:
    return [
        snapshots.parent / "blobs"
        for snapshots in root.parents
        if snapshots.name == "snapshots" and snapshots.parent.name.startswith("models--")
    ]


def unused_folder(out: Path) -> Path:
    """Return the real path of an output folder. Raises FileExistsError if it is not empty."""
    out = Path(os.path.realpath(out))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} must not exist, or be an empty folder. Choose a new name.")
    return out
