"""Biases of content by offset: rows of a table, or a vector, for each offset of query and key.

They are written once here; `attention/cpu` computes attention with them without looking rows up.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.compat.tracing import full, readable
from posenc.core.biases import (
    ALL,
    ScoreBias,
    for_query_heads,
    offset,
    offsets,
    per_query_head,
)
from posenc.core.shapes import KeyPositions, PairBias, Positions

FEW_QUERIES = 8  # queries, as in decoding
# Offsets for each key beyond which most of the products would not be looked up.
SPARSE = 4


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
    """Bias (u_h · k[j] + (q[i] + v_h) · W_h R(pᵢ − pⱼ)) · scale

    u and v are (head, 1, channel), W = `project` is (head, channel, w), and R = `sinusoids` takes
    positions to (…, token, w): all sines of the angles p θ, then all cosines. By the sum formula,
    with z = Wᵀ(q + v), the second product is one of what is known at i with what is known at j:

        z · R(a − b) = Σ sin bθ (z' sin aθ − z cos aθ) + cos bθ (z sin aθ + z' cos aθ)
        where z and z' belong to the sine and the cosine of θ
    """

    q_pos: Positions
    k_pos: KeyPositions
    q: Tensor
    k: Tensor
    u: Tensor | None
    v: Tensor
    scale: float
    project: Tensor
    sinusoids: Callable[[Tensor], Tensor]
    of_positions: tuple[Tensor, Tensor] | None = field(init=False, default=None)  # `tables`

    def __post_init__(self) -> None:
        self.k_pos = for_query_heads(self.k_pos, self.q.shape[1])

    @property
    def x(self) -> Tensor:
        """The queries (q + v) · scale."""
        return (self.q + self.v).to(self.exact) * self.scale

    @property
    def exact(self) -> torch.dtype:
        return torch.promote_types(self.q.dtype, torch.float32)

    @property
    def learns_in_16_bits(self) -> bool:
        """Whether a gradient would pass through appended channels of 16 bits.

        Those of a query sum to little over its keys, which stand at nearly the same sines: rounded
        to 16 bits, the gradient of `project` would be off by several percent.
        """
        learned = (self.q, self.v, self.project)
        trains = torch.is_grad_enabled() and any([x.requires_grad for x in learned])
        return trains and self.q.dtype is not self.exact

    def vectors(self, offset: Tensor) -> Tensor:
        """W_h R(offset), (head, offset, channel)."""
        return self.table(offset) @ self.project.to(self.exact).mT

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        x = self.x if rows == ALL else self.x[..., rows, :]
        z = x @ self.project.to(self.exact)
        bias = self.by_offset(z, rows, keys)
        if bias is None:
            q_table, k_table = self.tables()
            bias = turned(z, q_table[..., rows, :]) @ k_table[..., keys, :].mT
        if self.u is None:
            return bias
        k = per_query_head(self.k[..., keys, :], self.q).to(bias.dtype)
        return bias + self.u.to(bias.dtype) @ k.mT * self.scale

    def by_offset(self, z: Tensor, rows: slice, keys: slice) -> Tensor | None:
        """Products of few queries with R of all offsets that they meet, looked up for each key.

        With offsets low + size · c + f, c and f are far fewer than the keys, and so are sines.
        """
        if z.shape[-2] > FEW_QUERIES or not readable(self.q_pos, self.k_pos):
            return None
        apart = offsets(self.q_pos, self.k_pos, rows, keys)
        if apart.is_floating_point() or not apart.numel():
            return None
        low, high = map(int, apart.aminmax())
        if high - low > SPARSE * apart.shape[-1]:
            return None
        # R(low + size · c + f) by the formula, of a = low + size · c and b = −f
        size = 2 ** ((high - low).bit_length() // 2)
        coarse = torch.arange(low, high + 1, size, device=apart.device)
        fine = torch.arange(0, -size, -1, device=apart.device)
        table = self.table(torch.cat((coarse, fine))).squeeze(0)
        at_coarse = turned(z.unsqueeze(-2), table[: len(coarse)])
        products = (at_coarse @ table[len(coarse) :].mT).flatten(-2)
        return products.gather(-1, (apart - low).expand(*z.shape[:3], -1))

    def tables(self) -> tuple[Tensor, Tensor]:
        """R of the queries' and of the keys' positions: computed once, if needed."""
        if self.of_positions is None:
            self.of_positions = self.table(self.q_pos), self.table(self.k_pos)
        return self.of_positions

    def table(self, pos: Tensor) -> Tensor:
        """R(pos), (*batch, 1 or head, token, w); 1: the same for all heads."""
        sinusoids = self.sinusoids(pos).to(self.exact).to(pos.device)
        return sinusoids if pos.ndim == 3 else sinusoids.unsqueeze(-3)

    def absorbed(self, q: Tensor, k: Tensor, wholly: bool) -> tuple[Tensor, Tensor, Any]:
        """Add u to the queries; wholly, append w channels whose products are the second term."""
        dtype = q.dtype
        if wholly and self.learns_in_16_bits:
            return q, k, self
        # Another bias of a sum may have appended channels before
        if self.u is not None:
            q = q + F.pad(self.u, (0, q.shape[-1] - self.u.shape[-1]))
        if not wholly:
            return q.to(dtype), k, replace(self, u=None)
        z = (self.q + self.v).to(self.exact) @ self.project.to(self.exact)
        q_table, k_table = self.tables()
        q = torch.cat((q, turned(z, q_table)), -1)
        # Heads have positions of their own.
        if k_table.shape[-3] != 1:
            k = per_query_head(k, self.q)
        k = torch.cat((k, k_table.to(dtype).expand(*k.shape[:-1], -1)), -1)
        return q.to(dtype), k, None

    def terms(self) -> dict[str, ScoreBias]:
        """Name the terms as Transformer-XL's paper does; the fourth is q · k."""
        none, nobody = torch.zeros_like(self.q), torch.zeros_like(self.v)
        return {
            "u·k": replace(self, q=none, v=nobody),
            "q·r": replace(self, u=None, v=nobody),
            "v·r": replace(self, u=None, q=none),
        }


def turned(z: Tensor, table: Tensor) -> Tensor:
    """The coefficients of R(b) in z · R(a − b), by the sum formula; `table` is R(a)."""
    of_sin, of_cos = z.chunk(2, -1)
    sin, cos = table.chunk(2, -1)
    to_sin = torch.addcmul(of_cos * sin, of_sin, cos, value=-1)
    return torch.cat((to_sin, torch.addcmul(of_sin * sin, of_cos, cos)), -1)
