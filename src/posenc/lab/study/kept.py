"""Trained models that a study kept: one safetensors file each, with the cell that it came from.

model = posenc.lab.study.load("runs/models/0123456789abcdef.safetensors")
model.say(["w3", "w5", "<sep>"], 3)
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from posenc.lab.study import own_code
from posenc.lab.study.build import build
from posenc.lab.study.cell import Cell
from posenc.lab.study.model import Transformer
from posenc.lab.study.tasks import BEGIN, END, Task
from posenc.support.arguments import brief, count
from posenc.support.writing import write_whole

KEY = "posenc.lab.study"  # key of the metadata


@dataclass(frozen=True)
class Kept:
    """A trained model, the cell that it came from, and the symbols it knows."""

    model: Transformer
    cell: Cell
    vocabulary: tuple[str, ...]
    both_ways: bool

    def say(self, prompt: str | Sequence[str], more: int = 20) -> list[str]:
        """Go on with a text, always with the likeliest symbol, up to `<eos>` or `more` symbols.

        `prompt` is a sequence of the task's symbols; of a language, characters: a string.
        """
        if self.both_ways:
            raise ValueError(
                "an encoder says something at each place, and does not go on: call `.model`."
            )
        number = {symbol: n for n, symbol in enumerate(self.vocabulary)}
        unknown = [symbol for symbol in prompt if symbol not in number]
        if unknown:
            raise ValueError(
                f"`prompt` must be of symbols that the model knows, {brief(unknown[0])} is none:"
                f" it knows {' '.join(self.vocabulary[:8])} …"
            )
        tokens = torch.tensor([[number[BEGIN], *(number[symbol] for symbol in prompt)]])
        ids = self.model.generate(tokens, count(more, "more", 0))[0, tokens.shape[1] :].tolist()
        symbols = [self.vocabulary[token] for token in ids]
        return symbols[: symbols.index(END)] if END in symbols else symbols


def keep(model: Transformer, cell: Cell, task: Task, folder: Path) -> Path:
    """Write a model to `folder`, under the name of its cell; an earlier one of the cell goes."""
    from safetensors.torch import save

    about = {
        "cell": cell.settings,
        "label": cell.label,
        "vocabulary": [*task.vocabulary],
        "both_ways": task.both_ways,
        "sources": own_code.digests([cell.encoding]),
    }
    weights = {name: weight.detach().contiguous() for name, weight in model.state_dict().items()}
    path = folder / f"{cell.digest}.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, save(weights, {KEY: json.dumps(about)}))
    return path


def load(path: str | Path, allow_code: own_code.Allowed = ()) -> Kept:
    """Load the model that a study kept in a file, and return it with its cell and vocabulary.

    - `path`: file that `posenc study --keep` wrote
    - `allow_code`: names of code, "mine.py:Mine", that the file may run as its encoding, spelled as
      in the file; none by default

    Raises CodeRefused for code that is not allowed, and ValueError for a file that no study has
    written.

    >>> from tempfile import TemporaryDirectory
    >>> from posenc.lab.study.tasks import TASKS
    >>> cell, task = Cell("copy", "rope", seed=0), TASKS["copy"]
    >>> with TemporaryDirectory() as folder:
    ...     path = keep(build(cell, len(task.vocabulary)), cell, task, Path(folder))
    ...     load(path).cell.encoding
    'rope'
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}: `posenc study --keep` writes models.")
    foreign = ValueError(f"{path} is not a model that `posenc study --keep` has written.")
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
        # before a model is made, whose size would be what the file says
        fits = tuple(weights["head.weight"].shape) == sizes and len(layers) == cell.profile.layers
        if not (texts and fits and isinstance(both_ways, bool)):
            raise foreign
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        raise foreign from None
    own_code.check([cell.encoding], allow_code, path, sources)
    try:
        model = build(cell, len(vocabulary), both_ways)
        model.load_state_dict(weights)
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{path} holds other weights than those of its encoding: {why}") from None
    return Kept(model.eval(), cell, vocabulary, both_ways)
