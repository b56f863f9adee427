"""The specification of a model on this machine: of its config.json, or of what GGUF says."""

from pathlib import Path

from posenc.models.config import gguf
from posenc.models.config.parse import specify
from posenc.models.config.spec import Spec
from posenc.models.files import folder
from posenc.models.files.errors import ModelError
from posenc.models.weights import open_weights


def read(path: Path) -> Spec:
    """The specification of a config file, of a model folder, or of a GGUF file.

    Raises ModelError, which names file, key, value and what is allowed.
    """
    found = folder.find(path)
    if found.config is not None:
        return specify(folder.read_json(found.config), found.config.name)
    if found.format == "gguf":
        opened = open_weights(found)
        return gguf.read(opened.metadata, opened.infos, found.weights[0].name)
    raise ModelError(path, "", "holds no config.json, so what it does cannot be read")
