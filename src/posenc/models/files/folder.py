"""List the files of a model folder that may be read.

    in the folder                     weights taken
    *.safetensors.index.json          the shards that it names
    else *.safetensors, else *.gguf: model.* or else all files of the kind
    else *.bin, *.pt, …               refused when asked for: pickle can run code as it loads

No file is read that lies outside of the folder, and no code.
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
    """The files of a model. `weights` may be one index that names the shards, or pickles."""

    root: Path
    config: Path | None
    weights: tuple[Path, ...]
    format: Kind | None  # None: no weights that can be read
    notes: tuple[str, ...]
    values: Mapping[str, Any] | None = None  # what the config holds


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
    """Read the config, once, and note what is never loaded: files by name, and code it asks for."""
    values = None if config is None else read_json(config)
    notes = [*_remarks(remarkable)]
    if config is not None and values is not None and "auto_map" in values:
        notes.append(
            f"{printable(config.name)}:auto_map asks for code of the model's own; it is never run"
        )
    return ModelFiles(root, config, weights, kind, tuple(notes), values)


def _kind(path: Path) -> Kind:
    for kind in KINDS:
        if path.name.endswith((f".{kind}", f".{kind}.index.json")):
            return kind
    with opened(path) as file:
        # GGUF files have other names too, such as the first of several parts
        if file.read(4) == b"GGUF":
            return "gguf"
    raise ModelError(path, "", "is no file that posenc reads", allowed=".json, .safetensors, .gguf")


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
            root, "", "holds no config.json and no weights", allowed="*.safetensors, *.gguf"
        )
    return _found(root, config, tuple(root / name for name in pickles), None, code + pickles)


def _names(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in islice(entries, MOST_ENTRIES + 1))
    except OSError as error:
        raise ModelError(root, "", f"cannot be read: {error.strerror}") from None
    if len(names) > MOST_ENTRIES:
        raise ModelError(root, "", f"holds over {MOST_ENTRIES} files and is no model folder")
    return names


def _whole_model(names: list[str], kind: str) -> list[str]:
    """Keep only the file with the usual name, if there is one: others are versions of it."""
    usual = [name for name in (f"model.{kind}.index.json", f"model.{kind}") if name in names]
    return usual or names


def _remarks(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        f"{printable(name)} is in the folder; "
        + ("code from a model folder is never run" if name.endswith(".py") else NO_PICKLE)
        for name in names
    )


def inside(root: Path, name: str, said_by: str | Path = "", key: str = "") -> Path:
    """Return the regular file `name` below `root`; refuse one that leads elsewhere.

    Links are followed to their end, which must lie below `root`. In the cache of Hugging Face's hub
    it may also lie in `blobs` of the same repository: `models--*/snapshots/…` links to there only.
    """
    real_root = Path(os.path.realpath(root))
    # PureWindowsPath knows both kinds of slash, and drives
    windows = PureWindowsPath(name)
    if not name or "\0" in name or windows.drive or windows.root or ".." in windows.parts:
        raise ModelError(
            said_by or real_root, key, "names a file outside of the folder", name, "one below it"
        )
    path = root / name
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(home) for home in (real_root, *_blobs(real_root))):
        raise ModelError(said_by or real_root, key, "links to a file outside of the folder", name)
    opened(path).close()
    return path


def _blobs(root: Path) -> list[Path]:
    return [
        snapshots.parent / "blobs"
        for snapshots in root.parents
        if snapshots.name == "snapshots" and snapshots.parent.name.startswith("models--")
    ]


def unused_folder(out: Path) -> Path:
    """The real path of a folder to be written. Raises FileExistsError if it holds anything."""
    out = Path(os.path.realpath(out))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} exists, and nothing is overwritten: name a new folder.")
    return out
