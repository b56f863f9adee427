"""The model of a cell before training, each part of it drawn after a seed of its own."""

from hashlib import sha256
from typing import Any

import torch

from posenc.catalog import create, find
from posenc.core.encoding import Encoding
from posenc.encodings.rotary.rope import RoPE
from posenc.lab.study.cell import Cell
from posenc.lab.study.model import Transformer, round_products
from posenc.support.arguments import brief
from posenc.support.names import is_own


def build(cell: Cell, symbols: int, both_ways: bool = False) -> Transformer:
    """Build the model of a cell; its shared weights depend on the seed and sizes alone."""
    model = Transformer(
        symbols,
        cell.profile,
        lambda: encoding_of(cell, both_ways),
        seed=number("weights", cell.seed),
        encoding_seed=number("encoding", cell.seed),
        oracle=cell.control == "oracle",
        both_ways=both_ways,
    )
    if cell.precision == "bfloat16":
        round_products(model)
    return model


def told(cell: Cell, both_ways: bool) -> dict[str, Any]:
    """The settings of an encoding that follow from the mask and the trained length, in tokens.

    T5's last bucket begins within training, beyond the exact half of its buckets; DeBERTa's table
    ends with training; FIRE begins with its length; xPos fades over half of it, and is centred
    there, as in its paper.
    """
    length = cell.told
    if length is None or is_own(cell.encoding):
        return {}
    match find(cell.encoding).name:
        case "T5":
            return {"bidirectional": both_ways, "reach": max(length, 17)}
        case "FIRE":
            return {"length": float(length)}
        case "DeBERTa":
            return {"reach": length}
        case "xPos":
            return {"span": max(1.0, length / 2), "centre": length // 2}
    return {}


def encoding_of(cell: Cell, both_ways: bool = False) -> Encoding:
    """Build the encoding of one layer; the option `theta` has a RoPE's frequencies, one a pair."""
    dim = cell.profile.width // cell.profile.heads
    options = told(cell, both_ways) | dict(cell.options)
    if "theta" not in options:
        return create(cell.encoding, dim, cell.profile.heads, **options)
    if find(cell.encoding).name != "RoPE":
        raise ValueError(f"`theta` is an option of rope, not of {cell.encoding!r}.")
    try:
        theta = torch.tensor(options.pop("theta"), dtype=torch.float64)
    except (TypeError, ValueError):
        given = brief(cell.options["theta"])
        raise TypeError(f"`theta` must be a list of numbers, one a pair, got {given}.") from None
    return RoPE(theta, dim, **options)


def number(use: str, seed: int) -> int:
    """Derive a seed for each use of a run's seed, so that none of them moves the others."""
    return int.from_bytes(sha256(f"{use} {seed}".encode()).digest()[:7])
