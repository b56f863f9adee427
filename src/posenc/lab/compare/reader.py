"""Hugging Face models in a local folder, run with and without their positional encoding.

`without_positions` disables the encoding within a `with` block, by hooks on these modules. Weights
are unchanged:

    learned tables        every row becomes 0
    rotary embeddings     cos becomes 1, sin becomes 0
    T5's bias             becomes 0
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from posenc.analysis.capture import identity_rotation
from posenc.analysis.order import Order, changes, difference, repeated
from posenc.support.text import printable

TABLES = "position_embeddings", "embed_positions", "wpe", "relative_attention_bias"
ROTARY = "rotary_emb"


@dataclass(frozen=True)
class Words:
    """The tokens of a text, and the indices of those that are not special tokens."""

    ids: Int[Tensor, "1 token"]
    tokens: list[str]
    own: list[int]  # places of the tokens of the text, without special tokens


@dataclass(frozen=True)
class Reader:
    """A Hugging Face model without its head, together with its tokenizer."""

    model: Any
    tokenizer: Any
    unused: tuple[str, ...] = ()  # names of unused weights, such as those of a head

    def words(self, text: str) -> Words:
        encoded = self.tokenizer(text, return_tensors="pt", return_special_tokens_mask=True)
        ids, special = encoded["input_ids"], encoded["special_tokens_mask"][0]
        tokens = [t.strip("Ġ▁") for t in self.tokenizer.convert_ids_to_tokens(ids[0].tolist())]
        return Words(ids, tokens, (special == 0).nonzero().flatten().tolist())

    @torch.no_grad()
    def __call__(self, ids: Int[Tensor, "1 token"]) -> Float[Tensor, "1 token channel"]:
        """Return the output of the last layer for each token."""
        return self.model(input_ids=ids).last_hidden_state


def open_reader(folder: Path) -> Reader:
    """Open the Hugging Face model and tokenizer in a folder.

    Raises ValueError for a folder without a model, and ImportError without transformers.
    """
    try:
        import transformers  # noqa: F401
    except ImportError as missing:
        raise ImportError(
            "real models are opened by transformers, which is not installed. Run `python -m pip"
            " install 'transformers>=5,<6'`."
        ) from missing
    if not (folder / "config.json").is_file():
        raise ValueError(
            "the model must be a local folder with a config.json, got"
            f" {printable(str(folder), 200)}. Download the model first."
        )
    from posenc.models.hf.loading import load

    model, tokenizer, unused = load(folder)
    return Reader(model, tokenizer, unused)


@contextmanager
def without_positions(model: nn.Module) -> Iterator[nn.Module]:
    """Disable the positional encoding of a model inside the `with` block.

    Raises TypeError for a model without a module of a known name.
    """
    with ExitStack() as undo:
        switched_off = False
        for name, module in model.named_modules():
            last = name.rpartition(".")[-1]
            if last in TABLES or last == ROTARY:
                hook = _zero if last in TABLES else _identity_rotation
                undo.callback(module.register_forward_hook(hook).remove)
                switched_off = True
        if not switched_off:
            raise TypeError(
                f"the model must have a module called {', '.join(TABLES)} or {ROTARY}, so that"
                " posenc can disable the positional encoding of the model, got"
                f" {type(model).__name__} without one. Use another model."
            )
        yield model


def order_known(reader: Reader, text: str, seed: int = 0) -> Order:
    """Measure how far outputs change if words are shuffled while special tokens stay in place."""
    words = reader.words(text)
    own = torch.tensor(words.own)
    order = torch.arange(len(words.tokens))
    generator = torch.Generator().manual_seed(seed)
    order[own] = own[torch.randperm(len(own), generator=generator)]
    places = repeated([words.tokens[n] for n in words.own])
    twins = (words.own[places[0]], words.own[places[1]]) if places else None

    def tested() -> tuple[list[float], float | None]:
        apart = difference(reader, words.ids, *twins) if twins else None
        return changes(reader, words.ids, order), apart

    change, apart = tested()
    with without_positions(reader.model):
        without, apart_without = tested()
    return Order(words.tokens, order.tolist(), change, without, twins, apart, apart_without)


def _zero(module: nn.Module, args: Any, out: Tensor) -> Tensor:
    return torch.zeros_like(out)


def _identity_rotation(module: nn.Module, args: Any, out: Any) -> Any:
    return identity_rotation(out)
