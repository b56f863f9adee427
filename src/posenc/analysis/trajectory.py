"""Compute the encoded form of one vector at successive positions.

additive    x + PE(p)              the vector is an embedding
rotary      R(p) x                 a query of one head
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from posenc.core.encoding import Encoding
from posenc.properties.probe import in_float64


@dataclass(frozen=True)
class Advance:
    """A vector and its encoded form at each position."""

    position: list[int]
    vector: list[float]
    added: list[list[float]] | None  # (position, channel); None: the vector is rotated
    placed: list[list[float]]  # (position, channel), the encoded vector


@torch.no_grad()
def advance(
    encoding: Encoding, vector: Float[Tensor, "channel"], positions: Sequence[int]
) -> Advance:
    """Encode the same `vector` at each of `positions`, to show how the encoding moves it.

    Raises ValueError for encodings that change neither embeddings nor queries, such as biases.
    """
    encoding, pos = in_float64(encoding), torch.tensor(list(positions))
    at, unplaced = encoding.prepare(pos), vector.double().expand(len(pos), -1)
    if "on_embeddings" in encoding.acts_on:
        placed = encoding.on_embeddings(unplaced.unsqueeze(0), at).squeeze(0)
        added = (placed - unplaced).tolist()
    elif "on_queries" in encoding.acts_on:
        queries = unplaced.expand(1, encoding.heads or 1, -1, -1)
        placed, added = encoding.on_queries(queries, at)[0, 0], None
    else:
        raise ValueError(
            f"`encoding` must act on embeddings or queries, got {type(encoding).__name__}, which"
            " acts on scores."
        )
    return Advance(
        pos.tolist(),
        vector.tolist(),
        added,
        placed.tolist(),
    )
