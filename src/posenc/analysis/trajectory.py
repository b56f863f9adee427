"""Follow one vector as its position advances.

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
    """A vector at one position after the other."""

    position: list[int]
    vector: list[float]
    added: list[list[float]] | None  # (position, channel); None: it is turned, nothing is added
    placed: list[list[float]]  # (position, channel): what it becomes


@torch.no_grad()
def advance(
    encoding: Encoding, vector: Float[Tensor, "channel"], positions: Sequence[int]
) -> Advance:
    """Place `vector` at each of `positions`.

    Raises ValueError for encodings that change neither embeddings nor queries, as biases.
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
            f"{type(encoding).__name__} changes neither embeddings nor queries but the scores: its"
            " positions move no vector."
        )
    return Advance(
        pos.tolist(),
        vector.tolist(),
        added,
        placed.tolist(),
    )
