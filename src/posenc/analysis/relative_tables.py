"""Measure learned tables of relative positions by distance: T5's biases and Shaw's vectors.

    T5      value(δ, h) = weight[bucket(δ), h]                  added to the scores of head h
    Shaw    |a_δ|, |c_δ|, cos(a_δ, a_{δ+1})                     of key and value vectors

δ = position of the query − position of the key. Shaw's tables, for instance in VITS, begin with the
largest δ: row r is for δ = reach − r.

Raffel et al. 2020, arXiv:1910.10683, §2.1; Shaw et al. 2018, arXiv:1803.02155, §3.2.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from posenc.encodings.bias.t5 import bucket, starts


@dataclass(frozen=True)
class Steps:
    """T5 biases at the first and last distance of each bucket; the bias is constant in between."""

    distance: list[int]  # position of the query − position of the key
    heads: list[list[float]]  # the bias at each distance, in logits


@dataclass(frozen=True)
class Vectors:
    """Norms and similarities of a table of vectors with one vector for each distance."""

    distance: list[int]  # position of the query − position of the key
    norms: list[float]
    likeness: list[float]  # cosines of each vector and the next


@torch.no_grad()
def t5(weight: Tensor, reach: int = 128, bidirectional: bool = True) -> Steps:
    """Return the bias of each head by distance, from a table (bucket, head)."""
    buckets = len(weight)
    first = starts(buckets // 2 if bidirectional else buckets, reach)
    back = sorted({*first, *(start - 1 for start in first[1:]), reach})
    ahead = [-distance for distance in reversed(back) if distance] if bidirectional else []
    distance = [*ahead, *back]
    values = weight[bucket(torch.tensor(distance), buckets, reach, bidirectional)]
    return Steps(distance, values.T.double().tolist())


@torch.no_grad()
def shaw(table: Tensor) -> Vectors:
    """Return norms and similarities of the vectors in a Shaw table, (distance, channel)."""
    reach = len(table) // 2
    table = table.double()
    return Vectors(
        list(range(reach, -reach - 1, -1)),
        table.norm(dim=-1).tolist(),
        cosine_similarity(table[1:], table[:-1], dim=-1).tolist(),
    )
