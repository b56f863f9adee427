"""The files of one model, found and read once, for everything that is asked of it."""

from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any

from posenc.models.config.gguf import as_config, specify_gguf
from posenc.models.config.parse import specify
from posenc.models.config.spec import Spec
from posenc.models.files.errors import ModelError, Unread
from posenc.models.files.folder import ModelFiles, find_files
from posenc.models.weights import Weights, open_weights


class Source:
    """A config file, a model folder, or a file of weights; each part is read when first asked for.

    - `path`: what was given
    - `files`: the files that may be read; raises ModelError where there are none

    What is read is kept for the life of the object, so a file that changes needs a new one.
    """

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def of(cls, model: "Path | Source") -> "Source":
        """Return `model` if it is open already, otherwise open it."""
        return model if isinstance(model, Source) else cls(model)

    @cached_property
    def files(self) -> ModelFiles:
        return find_files(self.path)

    @property
    def values(self) -> dict[str, Any] | None:
        """A copy of what config.json holds; None without one."""
        return deepcopy(dict(self.files.values)) if self.files.values is not None else None

    def config(self, purpose: str) -> dict[str, Any]:
        """Return `values`, of a GGUF file its metadata as a config. Raises ModelError for none.

        `purpose` ends the sentence "holds no config.json, …".
        """
        if self.files.format == "gguf":
            return as_config(self.weights.metadata, self.weights, self.files.weights[0].name)
        if (values := self.values) is None:
            raise ModelError(self.path, "", f"holds no config.json, {purpose}")
        return values

    @cached_property
    def weights(self) -> Weights:
        """The weights, of which headers alone are read. Raises ModelError without any."""
        return open_weights(self.files)

    @cached_property
    def spec(self) -> Spec:
        """What the config states, without one the metadata of a GGUF file.

        Raises ModelError, which names file, key, value and what is allowed; Unread for neither.
        """
        if self.files.config is not None and self.files.values is not None:
            return specify(self.files.values, self.files.config.name)
        if self.files.format == "gguf":
            return self._of_metadata
        raise Unread(self.path, "", "holds no config.json, so what it does cannot be read")

    @property
    def own_spec(self) -> Spec:
        """What the file at `path` states: of a GGUF file its metadata, whatever lies beside it."""
        of_file = self.files.format == "gguf" and not self.path.is_dir()
        return self._of_metadata if of_file else self.spec

    @cached_property
    def _of_metadata(self) -> Spec:
        return specify_gguf(self.weights.metadata, self.weights, self.files.weights[0].name)


def read(path: Path) -> Spec:
    """Return the specification of a config file, a model folder, or a GGUF file.

    Raises ModelError, which names file, key, value and what is allowed; Unread without a config.
    """
    return Source(path).spec
