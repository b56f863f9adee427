"""Scores against distance: what the encoding makes of near and far, on real words.

The layer's query projection serves for queries and keys alike, so that a score measures likeness,
and what changes with distance is the encoding's doing.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.attention import scores
from posenc.layer import SelfAttention
from posenc.positions import folded


@dataclass(frozen=True)
class Curve:
    """Over all pairs of a query and a key so many tokens before it, in all heads and windows."""

    distance: list[int]
    mean: list[float]
    low: list[float]  # a tenth of the scores is lower
    high: list[float]  # a tenth is higher


@torch.no_grad()
def by_distance(layer: SelfAttention, x: Tensor) -> Curve:
    """`x` (window, token, channel): the vectors of windows of text."""
    encoding, tokens = layer.encoding, x.shape[-2]
    pos = folded(tokens, encoding.axes)
    x = encoding.on_embeddings(x, encoding.prepare(pos))
    q = layer.q(x).unflatten(-1, (layer.heads, -1)).transpose(1, 2)
    made = scores(encoding, q, q, pos, pos)
    found = [made.diagonal(-distance, -2, -1).flatten() for distance in range(tokens)]
    tenths = torch.tensor([0.1, 0.9])
    bands = [torch.quantile(values, tenths).tolist() for values in found]
    return Curve(
        distance=list(range(tokens)),
        mean=[values.mean().item() for values in found],
        low=[low for low, _ in bands],
        high=[high for _, high in bands],
    )
