"""Biases of content by offset: rows of a table, or a vector, for each offset of query and key.

They are written once here; `attention/cpu` computes attention with them without looking rows up.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from posenc.core.biases import (
    ALL,
    ScoreBias,
    for_query_heads,
    offset,
    offsets,
    per_query_head,
)
from posenc.core.shapes import KeyPositions, PairBias, Positions
from posenc.core.tracing import full, readable

FEW_QUERIES = 8  # queries, as in decoding


@dataclass(eq=False)
class TableBias(ScoreBias):
    """Bias q[i] · query_table[query_row(δ)] + k[j] · key_table[key_row(δ)],      δ = pᵢ − pⱼ

    `query_table`, which is multiplied by `scale`, and `key_table` are (head, row, channel), or
    (row, channel) for all heads; `key_table` is None where there is no second term. Both functions
    take offsets to rows, and all offsets beyond `reach` on one side to one row. `value_table`,
    (row, channel), is what the encoding adds to the values of keys at the offsets of `query_row`.
    """

    q_pos: Positions
    k_pos: KeyPositions
    reach: int
    query_row: Callable[[Tensor], Tensor]
    q: Tensor
    query_table: Tensor
    key_row: Callable[[Tensor], Tensor] | None = None
    k: Tensor | None = None
    key_table: Tensor | None = None
    value_table: Tensor | None = None
    scale: float = 1.0
    by_query: Tensor | None = field(init=False, default=None)  # `query_scores`
    by_key: Tensor | None = field(init=False, default=None)  # `key_scores`

    def __post_init__(self) -> None:
        self.k_pos = for_query_heads(self.k_pos, self.q.shape[1])
        if not readable(self.q):
            self.hold()

    def hold(self) -> None:
        self.query_scores()
        self.key_scores()

    def query_scores(self) -> Tensor:
        """The products q · query_table, (batch, head, query, row): computed once, if needed."""
        if self.by_query is None:
            self.by_query = self.q @ (self.query_table * self.scale).mT.to(self.q.dtype)
        return self.by_query

    def key_scores(self) -> Tensor | None:
        """The products k · key_table, (batch, head, key, row): computed once, if needed."""
        if self.by_key is None and self.k is not None and self.key_table is not None:
            self.by_key = self.k @ self.key_table.mT
        return self.by_key

    def terms(self) -> dict[str, ScoreBias]:
        """Name the terms as DeBERTa's paper does."""
        terms: dict[str, ScoreBias] = {"content-position": replace(self, key_table=None)}
        if self.key_table is not None:
            none = torch.zeros_like(self.query_table)
            terms["position-content"] = replace(self, query_table=none)
        return terms

    def pair(self) -> PairBias:
        apart = offset(self.q_pos, self.k_pos)
        query_scores, key_scores = self.query_scores(), self.key_scores()

        def of_pair(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            δ = apart(b, h, i, j)
            bias = query_scores[b, h, i, self.query_row(δ)]
            if key_scores is None or self.key_row is None:
                return bias
            return bias + key_scores[b, h, j, self.key_row(δ)]

        return of_pair

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        """Look the scores up; one list of rows serves all heads, far faster than four indices."""
        apart = offsets(self.q_pos, self.k_pos, rows, keys)
        bias = _looked_up(self.query_scores()[..., rows, :], self.query_row(apart))
        if self.key_row is None or self.k is None or self.key_table is None:
            return bias
        few = readable(apart) and apart.shape[:2] == (1, 1) and apart.shape[2] <= FEW_QUERIES
        if not few or not apart.numel() or torch.is_grad_enabled():
            by_key = self.key_scores()
            assert by_key is not None
            return bias + _looked_up(by_key[..., keys, :], self.key_row(apart).mT).mT
        # Of few queries each key meets few rows: their products, instead of those of all rows.
        k, rows_met = self.k[..., keys, :], self.key_row(apart[0, 0])
        return bias + _own_products(full(k), full(self.key_table), rows_met)


def _looked_up(table: Tensor, row: Tensor) -> Tensor:
    """Gather table[..., n, row[..., n, m]], (batch, head, n, m).

    In float32 at least: its gradient sums all that share a row, and 16 bits would lose the last.
    """
    return full(table).gather(-1, row.expand(*table.shape[:2], *row.shape[2:]))


def _own_products(k: Tensor, table: Tensor, row: Tensor) -> Tensor:
    """Compute k[..., j, :] · table[..., row[i, j], :], (batch, head, query, key), query by query.

    The first keys may all be beyond the reach, where they share a row: one product for all.
    """
    changes = (row[:, 1:] != row[:, :-1]).any(0).nonzero()
    shared = int(changes[0]) + 1 if len(changes) else row.shape[-1]
    far = k[..., :shared, :] @ table[..., row[:, 0], :].mT
    near = [(k[..., shared:, :] * table[..., some, :]).sum(-1) for some in row[:, shared:]]
    return torch.cat((far.mT, torch.stack(near, -2)), -1)


@dataclass(eq=False)
class VectorBias(ScoreBias):
    """Bias (u_h · k[j] + (q[i] + v_h) · vectors(pᵢ − pⱼ)[h]) · scale,   u and v: (head, 1, channel)

    `vectors` takes offsets to (head, offset, channel). `products` of some rows and keys takes their
    (q + v) to the second term, by another formula, which is faster for few queries. `channels` of
    queries and keys gives them more channels that carry the whole bias, and so its gradients.
    """

    q_pos: Positions
    k_pos: KeyPositions
    q: Tensor
    k: Tensor
    u: Tensor | None
    v: Tensor
    scale: float
    vectors: Callable[[Tensor], Tensor]
    products: Callable[[slice, slice], Callable[[Tensor], Tensor]]
    channels: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

    @property
    def x(self) -> Tensor:
        """The queries (q + v) · scale, at least float32."""
        return (self.q + self.v).to(torch.promote_types(self.q.dtype, torch.float32)) * self.scale

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        bias = self.products(rows, keys)(self.x if rows == ALL else self.x[..., rows, :])
        if self.u is None:
            return bias
        k = per_query_head(self.k[..., keys, :], self.q).to(bias.dtype)
        return bias + self.u.to(bias.dtype) @ k.mT * self.scale

    def absorbed(self, q: Tensor, k: Tensor, wholly: bool) -> tuple[Tensor, Tensor, Any]:
        """Add u to the queries; wholly, append channels whose products are the bias."""
        if wholly or q.dtype == torch.float64:  # vectors are rounded to float32
            return *self.channels(q, k), None
        if self.u is None:
            return q, k, self
        return (q + self.u).to(q.dtype), k, replace(self, u=None)

    def terms(self) -> dict[str, ScoreBias]:
        """Name the terms as Transformer-XL's paper does; the fourth is q · k."""
        none, nobody = torch.zeros_like(self.q), torch.zeros_like(self.v)
        return {
            "u·k": replace(self, q=none, v=nobody),
            "q·r": replace(self, u=None, v=nobody),
            "v·r": replace(self, u=None, q=none),
        }
