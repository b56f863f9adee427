"""Construction of a run's untrained model, with a separate random seed for each purpose."""

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
    """Build the untrained model of a training run.

    Weights outside of encodings depend on the seed and the sizes only.
    """
    model = Transformer(
        symbols,
        cell.profile,
        lambda: encoding_of(cell, both_ways),
        seed=derived_seed("weights", cell.seed),
        encoding_seed=derived_seed("encoding", cell.seed),
        both_ways=both_ways,
    )
    if cell.precision == "bfloat16":
        round_products(model)
    return model


def length_hints(cell: Cell, both_ways: bool) -> dict[str, Any]:
    """Return an encoding's constructor arguments that depend on the mask or the trained length.

    The trained length is `cell.told`, the tokens of the longest training text.

    T5's last bucket starts within the trained length, and after the half of its buckets that are
    exact. DeBERTa's table ends at the trained length. FIRE's initial length is the trained length.
    xPos decays over half of the trained length, and is centred there, as in its paper.
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
    """Build the encoding of one layer.

    The option `theta`, for RoPE only, sets the frequencies.
    """
    dim = cell.profile.width // cell.profile.heads
    options = length_hints(cell, both_ways) | dict(cell.options)
    if "theta" not in options:
        return create(cell.encoding, dim, cell.profile.heads, **options)
    if find(cell.encoding).name != "RoPE":
        raise ValueError(
            f"the option `theta` must be used with rope only, got {cell.encoding!r}. Leave out"
            " `theta`."
        )
    try:
        theta = torch.tensor(options.pop("theta"), dtype=torch.float64)
    except (TypeError, ValueError):
        given = brief(cell.options["theta"])
        raise TypeError(
            f"`theta` must be a list of numbers, one for each pair of channels, got {given}."
        ) from None
    return RoPE(theta, dim, **options)


def derived_seed(use: str, seed: int) -> int:
    """Derive a separate seed for each purpose, such as weights or data, from the seed of a run."""
    return int.from_bytes(sha256(f"{use} {seed}".encode()).digest()[:7])
