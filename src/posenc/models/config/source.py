"""Specify a model on this machine from its config.json, or from the metadata of a GGUF file."""

from pathlib import Path

from posenc.models.config.gguf import specify_gguf
from posenc.models.config.parse import specify
from posenc.models.config.spec import Spec
from posenc.models.files.errors import Unread
from posenc.models.files.folder import find_files, read_json
from posenc.models.weights import open_weights


def read(path: Path) -> Spec:
    """Return the specification of a config file, a model folder, or a GGUF file.

    Raises ModelError, which names file, key, value and what is allowed; Unread without a config.
    """
    files = find_files(path)
    if files.config is not None:
        return specify(read_json(files.config), files.config.name)
    if files.format == "gguf":
        weights = open_weights(files)
        return specify_gguf(weights.metadata, weights, files.weights[0].name)
    raise Unread(path, "", "holds no config.json, so what it does cannot be read")


def read_itself(path: Path) -> Spec:
    """Return the specification of the file at `path`: of a GGUF file by its metadata, whatever
    config.json lies beside it.
    """
    files = find_files(path)
    if path.is_dir() or files.format != "gguf":
        return read(path)
    weights = open_weights(files)
    return specify_gguf(weights.metadata, weights, path.name)
