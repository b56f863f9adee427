"""Trained models of a study, each saved as a safetensors file with the settings of its run.

model = posenc.lab.study.load("runs/models/0123456789abcdef.safetensors")
model.generate(["w3", "w5", "<sep>"], 3)
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from posenc.lab.study import user_code_gate
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell
from posenc.lab.study.model import Transformer
from posenc.lab.study.tasks import BEGIN, END, Task
from posenc.support.arguments import brief, count
from posenc.support.writing import write_whole

KEY = "posenc.lab.study"  # key of the metadata


@dataclass(frozen=True)
class SavedModel:
    """A trained model, the settings of its training run (cell), and its vocabulary."""

    model: Transformer
    cell: Cell
    vocabulary: tuple[str, ...]
    both_ways: bool

    def generate(self, prompt: str | Sequence[str], more: int = 20) -> list[str]:
        """Continue a text with the likeliest symbols, up to `<eos>` or `more` symbols.

        - `prompt`: symbols of the task; for a language model a string
        - `more`: greatest number of new symbols

        Returns the new symbols. Raises ValueError for an encoder and for unknown symbols.
        """
        if self.both_ways:
            raise ValueError(
                "a model that generates text must be a decoder, got an encoder. Call"
                " `.model(tokens)` for the logits of the encoder at each token."
            )
        number = {symbol: n for n, symbol in enumerate(self.vocabulary)}
        unknown = [symbol for symbol in prompt if symbol not in number]
        if unknown:
            raise ValueError(
                "`prompt` must consist of symbols in the vocabulary,"
                f" {' '.join(self.vocabulary[:8])} …, got {brief(unknown[0])}. Remove this symbol."
            )
        tokens = torch.tensor([[number[BEGIN], *(number[symbol] for symbol in prompt)]])
        ids = self.model.generate(tokens, count(more, "more", 0))[0, tokens.shape[1] :].tolist()
        symbols = [self.vocabulary[token] for token in ids]
        return symbols[: symbols.index(END)] if END in symbols else symbols


def save_model(model: Transformer, cell: Cell, task: Task, folder: Path) -> Path:
    """Write the model of a run to a file in `folder`, and return its path.

    The file's name is the digest of the run. An existing file is replaced.
    """
    from safetensors.torch import save

    about = {
        "cell": cell.settings,
        "label": cell.label,
        "vocabulary": [*task.vocabulary],
        "both_ways": task.both_ways,
        "sources": user_code_gate.digests([cell.encoding]),
    }
    weights = {name: weight.detach().contiguous() for name, weight in model.state_dict().items()}
    path = folder / f"{cell.digest}.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, save(weights, {KEY: json.dumps(about)}))
    return path


def load(path: str | Path, allow_code: user_code_gate.Allowed = ()) -> SavedModel:
    """Load a model that a study saved, with the settings of its run and its vocabulary.

    - `path`: file written by `posenc study --keep`
    - `allow_code`: names of code, "mine.py:Mine", that may be run as the model's encoding, spelled
      as in the file; none by default

    Raises CodeRefused for code that is not allowed, and ValueError for a file that was not written
    by a study.

    >>> from tempfile import TemporaryDirectory
    >>> from posenc.lab.study.tasks import TASKS
    >>> cell, task = Cell("copy", "rope", seed=0), TASKS["copy"]
    >>> with TemporaryDirectory() as folder:
    ...     path = save_model(build(cell, len(task.vocabulary)), cell, task, Path(folder))
    ...     load(path).cell.encoding
    'rope'
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise ValueError(
            f"`path` must be a model saved by `posenc study --keep`, got {path}, which is not a"
            " file."
        )
    foreign = ValueError(f"`path` must be a model saved by `posenc study --keep`, got {path}.")
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})[KEY])
            weights: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}
        cell = Cell.of(about["cell"], about["label"])
        vocabulary, both_ways = tuple(about["vocabulary"]), about["both_ways"]
        sources = dict(about.get("sources", {}))
        texts = all(isinstance(text, str) for text in (cell.label, *vocabulary))
        sizes = len(vocabulary), cell.profile.width
        layers = {name.split(".")[1] for name in weights if name.startswith("blocks.")}
        # Check sizes before a model is made, because the file determines how large that model is
        fits = tuple(weights["head.weight"].shape) == sizes and len(layers) == cell.profile.layers
        if not (texts and fits and isinstance(both_ways, bool)):
            raise foreign
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        raise foreign from None
    user_code_gate.check_allowed([cell.encoding], allow_code, path, sources)
    try:
        model = build(cell, len(vocabulary), both_ways)
        model.load_state_dict(weights)
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{path} has weights that do not fit its encoding: {why}") from None
    return SavedModel(model.eval(), cell, vocabulary, both_ways)
