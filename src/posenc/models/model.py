"""One object for a published model and its tools: `posenc.Model("folder").inspect(131072)`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posenc.models import inspection
from posenc.models.check.verdict import Check, check
from posenc.models.config.source import Source
from posenc.models.extend import Extension, extend
from posenc.models.files import hub
from posenc.models.files.folder import ModelFiles

if TYPE_CHECKING:
    from posenc.core.encoding import Encoding
    from posenc.core.frequencies import Layout
    from posenc.models.convert import Converted
    from posenc.models.prove import Proof
    from posenc.models.resize import Resized


class Model(Source):
    """Published model; its files are found and read once, on first use.

    - `model`: a model folder, its config.json, or a file of weights (safetensors, GGUF); the id of
      a model on the Hugging Face hub; or the values of a config
    - `weights`: True also downloads the weights of a model on the hub

    Attributes: `spec` (the specification of each layer), `values` (a copy of the config),
    `weights` (name → tensor), `files`, `path`. A missing or faulty file raises ModelError when it
    is first used.

    >>> llama = Model({"model_type": "llama", "max_position_embeddings": 8192})
    >>> llama.inspect(131072).verdict
    'breaks'
    >>> len(llama.encodings())
    32
    """

    def __init__(self, model: str | Path | Mapping[str, Any], weights: bool = False):
        self.name, self._has_files = "", not isinstance(model, Mapping)
        if isinstance(model, Mapping):
            super().__init__(Path("config.json"))
            self.files = ModelFiles(Path(), self.path, (), None, (), model)
            return
        super().__init__(hub.local(model, weights) if isinstance(model, str) else model)
        if str(model) != str(self.path):
            self.name = str(model)

    def encodings(self) -> "Sequence[Encoding]":
        """Return the encoding of each layer, ready for `attend`; see `Spec.encodings`."""
        return self.spec.encodings()

    def inspect(self, target: int | None = None, weights: bool = False) -> inspection.Inspection:
        """Report the encoding of each layer, and failures in longer texts; see `posenc.inspect`.

        - `target`: length in tokens for which the report gives a verdict; None: no verdict
        - `weights`: True also measures the tensors
        """
        model = self if self._has_files else self.values or {}
        return inspection.inspect(model, target, weights, self.name)

    def check(self, **options: Any) -> Check:
        """Check the files for faults, by rules and with the weights.

        - `options`: those of `posenc.models.check.verdict.check`: `letters`, `against`, `used_by`,
          `strict`, `ignore`, `progress`
        """
        return check(self, **options)

    def extend(self, to: int | None = None, method: str = "yarn", **options: Any) -> Extension:
        """Write a config for longer texts, in place or into a copy of the folder.

        - `to`: length in tokens; None: `factor` times `trained`
        - `method`: "yarn", "linear", "ntk", "dynamic", "llama3" or "base"
        - `options`: those of `posenc.models.extend.extend`: `factor`, `trained`, `base`, `out`

        This object keeps the old config.
        """
        return extend(self, to, method, **options)

    def prove(self, to: int, **options: Any) -> "Proof":
        """Measure the loss of each method of context extension on a longer text.

        - `to`: length in tokens
        - `options`: those of `posenc.models.prove.prove`: `letters`, `base`, `trained`,
          `precision`, `progress`
        """
        # Imported here because it needs torch
        from posenc.models.prove import prove

        return prove(self, to, **options)

    def convert(self, to: "Layout", out: Path, **options: Any) -> "Converted":
        """Write a copy of the model with the other RoPE pair layout in q and k weights.

        - `to`: "interleaved" or "half"
        - `out`: a new folder
        - `options`: those of `posenc.models.convert.convert`: `from_`, `progress`
        """
        from posenc.models.convert import convert

        return convert(self, to, out, **options)

    def resize(self, to: int, out: Path, part: str = "") -> "Resized":
        """Write a copy of the model whose learned position table has another length.

        - `to`: tokens, or pixels of a side
        - `out`: a new folder
        - `part`: key of the nested config with the table, such as "vision_config"
        """
        from posenc.models.resize import resize

        return resize(self, to, out, part)
