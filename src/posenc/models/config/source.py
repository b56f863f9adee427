"""Lazy, cached access to the config, weights and `Spec` of one model on disk."""

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
    """Model at a path (config file, folder or weights file), whose files are read on first use.

    - `path`: the path as passed
    - `files`: the files that may be read; raises ModelError if there are none

    Parts are cached for the life of the object, so a changed file needs a new object.
    """

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def of(cls, model: "Path | Source") -> "Source":
        """Return `model` itself if it is a Source, otherwise `Source(model)`."""
        return model if isinstance(model, Source) else cls(model)

    @cached_property
    def files(self) -> ModelFiles:
        return find_files(self.path)

    @property
    def values(self) -> dict[str, Any] | None:
        """A copy of the parsed config.json; None if there is no config."""
        return deepcopy(dict(self.files.values)) if self.files.values is not None else None

    def config(self, purpose: str) -> dict[str, Any]:
        """Return the parsed config, or for a GGUF file its metadata translated to a config.

        Raises ModelError "contains no config.json, …" if there is neither; `purpose` ends the
        sentence.
        """
        if self.files.format == "gguf":
            return as_config(self.weights.metadata, self.weights, self.files.weights[0].name)
        if (values := self.values) is None:
            raise ModelError(self.path, "", f"contains no config.json, {purpose}")
        return values

    @cached_property
    def weights(self) -> Weights:
        """The model's weights: names and shapes, with each tensor read when it is accessed.

        Raises ModelError if there are no weights.
        """
        return open_weights(self.files)

    @cached_property
    def spec(self) -> Spec:
        """The model's `Spec`, from the config, or from GGUF metadata if there is no config.

        Raises ModelError with file, key, value and the allowed values; Unread if there is neither.
        """
        if self.files.config is not None and self.files.values is not None:
            return specify(self.files.values, self.files.config.name)
        if self.files.format == "gguf":
            return self._of_metadata
        raise Unread(
            self.path,
            "",
            "contains no config.json, so its encodings cannot be read. Add the config",
        )

    @property
    def own_spec(self) -> Spec:
        """The `Spec` of the file at `path`; a config beside a GGUF file is ignored."""
        of_file = self.files.format == "gguf" and not self.path.is_dir()
        return self._of_metadata if of_file else self.spec

    @cached_property
    def _of_metadata(self) -> Spec:
        return specify_gguf(self.weights.metadata, self.weights, self.files.weights[0].name)


def read(path: Path) -> Spec:
    """Return the `Spec` of a model, read from a config file, a folder, or a GGUF file.

    Raises ModelError with file, key, value and the allowed values; Unread without a config.
    """
    return Source(path).spec
