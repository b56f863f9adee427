"""The bias of Shaw and DeBERTa, from tables with a learned vector for each offset.

Offsets beyond the reach share one vector.

    score(i, j) = qᵢ · kⱼ · scale + qᵢ · a[row(δ)] + kⱼ · b[row'(δ)],      δ = pᵢ − pⱼ
    out(i) = Σⱼ weight(i, j) (vⱼ + c[row(δ)])

For far pairs, |δ| ≥ reach, the second term is one number per query, the third one per key, and c is
one vector, so torch's kernel computes a rectangle of far pairs without a table. Scores of near
pairs are computed in tiles. The parts are merged (`merge_softmax.py`).

At equally spaced positions δ depends on i − j, so a tile of n queries and m keys needs n + m − 1
rows of a. qᵢ · a for these rows is one matrix product, which is read along diagonals by strides;
the gradient is written in the same way. Gradients are computed from L, tile by tile. Memory is
O(tokens · channels + tile). There is no second derivative.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import ceil, floor
from typing import Any

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.engine import Tile, TiledBias, by_tiles, skewed, zeros_around
from posenc.attention.spacing import DiagonalBand
from posenc.compat.tracing import is_eager_cpu, upcast
from posenc.core.biases import ALL, FEW_QUERIES, ScoreBias, for_query_heads, offset, offsets
from posenc.core.shapes import KeyPositions, PairBias, Positions

FEWEST_ROWS, MOST_ROWS = 128, 256  # queries in a block


@dataclass(eq=False)
class TableBias(ScoreBias):
    """A bias from two tables, q[i] · query_table[r(δ)] + k[j] · key_table[r'(δ)], δ = pᵢ − pⱼ.

    r and r' are `query_row` and `key_row`.

    - `q_pos`, `k_pos`: positions of queries and keys
    - `reach`: distance from which on all offsets of one side share a row
    - `query_row`, `key_row`: functions from offsets to rows
    - `q`, `k`: queries and keys, (batch, head, token, channel)
    - `query_table`, `key_table`: tables (head, row, channel), or (row, channel) for all heads
    - `of_keys`: (`key_row`, `k`, `key_table`); None: no second term
    - `value_table`: rows (row, channel) that are added to values, by `query_row`, or None
    - `scale`: factor of `query_table`
    """

    takes_sinks = False
    q_pos: Positions
    k_pos: KeyPositions
    reach: int
    query_row: Callable[[Tensor], Tensor]
    q: Tensor
    query_table: Tensor
    of_keys: tuple[Callable[[Tensor], Tensor], Tensor, Tensor] | None = None
    value_table: Tensor | None = None
    scale: float = 1.0
    by_query: Tensor | None = field(init=False, default=None)  # `query_scores`
    by_key: Tensor | None = field(init=False, default=None)  # `key_scores`

    def __post_init__(self) -> None:
        self.k_pos = for_query_heads(self.k_pos, self.q.shape[1])
        self.adds_values = self.value_table is not None
        if not is_eager_cpu(self.q):
            self.hold()

    def hold(self) -> None:
        self.query_scores()
        self.key_scores()

    def query_scores(self) -> Tensor:
        """Return the products q · query_table, (batch, head, query, row), computed on first use."""
        if self.by_query is None:
            self.by_query = self.q @ (self.query_table * self.scale).mT.to(self.q.dtype)
        return self.by_query

    def key_scores(self) -> Tensor | None:
        """Return the products k · key_table, (batch, head, key, row), computed on first use."""
        if self.by_key is None and self.of_keys is not None:
            _, k, table = self.of_keys
            self.by_key = k @ table.mT
        return self.by_key

    def terms(self) -> dict[str, ScoreBias]:
        """Return the terms of the bias by their names in the DeBERTa paper."""
        terms: dict[str, ScoreBias] = {"content-position": replace(self, of_keys=None)}
        if self.of_keys is not None:
            none = torch.zeros_like(self.query_table)
            terms["position-content"] = replace(self, query_table=none)
        return terms

    def pair(self) -> PairBias:
        apart = offset(self.q_pos, self.k_pos)
        query_scores, key_scores = self.query_scores(), self.key_scores()

        def of_pair(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            δ = apart(b, h, i, j)
            bias = query_scores[b, h, i, self.query_row(δ)]
            if key_scores is None or self.of_keys is None:
                return bias
            return bias + key_scores[b, h, j, self.of_keys[0](δ)]

        return of_pair

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        """Return the bias of queries `rows` and keys `keys`, from products with the tables."""
        apart = offsets(self.q_pos, self.k_pos, rows, keys)
        bias = _looked_up(self.query_scores()[..., rows, :], self.query_row(apart))
        if self.of_keys is None:
            return bias
        key_row, k, key_table = self.of_keys
        few = is_eager_cpu(apart) and apart.shape[:2] == (1, 1) and apart.shape[2] <= FEW_QUERIES
        if not few or not apart.numel() or torch.is_grad_enabled():
            by_key = self.key_scores()
            assert by_key is not None
            return bias + _looked_up(by_key[..., keys, :], key_row(apart).mT).mT
        # With few queries each key needs few rows, so only their products are computed
        k, key_table = upcast(k[..., keys, :]), upcast(key_table)
        return bias + _own_products(k, key_table, key_row(apart[0, 0]))

    def attended(self, call: Call, band: DiagonalBand) -> Tensor:
        assert self.steps is not None
        step, shift = self.steps
        # The two bands of pairs with offsets beyond the reach
        behind = band.within(ceil((self.reach - shift) / step), band.high)
        ahead = band.within(band.low, floor((-self.reach - shift) / step))
        # With fewer queries per block, fewer far keys are computed as near ones, but a tile needs
        # more rows of tables per query
        size = max(FEWEST_ROWS, min(MOST_ROWS, self.reach // step))
        blocks = [slice(start, min(start + size, band.rows.stop)) for start in band.rows[::size]]
        heads = slice(0, call.q.shape[1])
        tiles = [
            Tile(heads, rows, keys, far, first=not n)
            for rows in blocks
            for n, (keys, far) in enumerate(_parts(band, rows, behind, ahead))
        ]
        # The offsets of all differences i − j, the largest first
        differences = torch.arange(band.queries - 1, -band.keys, -1, device=call.q.device)
        q, k, v, *tensors = _tensors(call, self, step * differences + shift)
        terms = TiledTables(band, tiles, tensors, call.trains)
        return by_tiles(q, k, v, terms, None, call.scale, call.trains)


def _looked_up(table: Tensor, row: Tensor) -> Tensor:
    """Return table[…, i, row[…, i, j]] for all queries i and keys j, in float32 or float64.

    The gradient sums over all pairs that share a row, which needs more than 16 bits.
    """
    return upcast(table).gather(-1, row.expand(*table.shape[:2], *row.shape[2:]))


def _own_products(k: Tensor, table: Tensor, row: Tensor) -> Tensor:
    """Return the products of keys k[j] with rows row[i, j] of a table, (batch, head, query, key).

    The first keys may all be beyond the reach and share a row, which needs only one product.
    """
    changes = (row[:, 1:] != row[:, :-1]).any(0).nonzero()
    shared = int(changes[0]) + 1 if len(changes) else row.shape[-1]
    far = k[..., :shared, :] @ table[..., row[:, 0], :].mT
    near = [(k[..., shared:, :] * table[..., some, :]).sum(-1) for some in row[:, shared:]]
    return torch.cat((far.mT, torch.stack(near, -2)), -1)


def _tensors(call: Call, bias: TableBias, offsets: Tensor) -> tuple[Any, ...]:
    """Return the tensors from which attention and its bias are computed.

    The tensors are q, k and v, the bias's queries and keys, and its tables for queries, keys and
    values. Without gradients and without a key table, q, k and v keep their dtype.
    """
    row = bias.query_row(offsets)
    a, c = (bias.query_table * bias.scale).to(call.exact).index_select(-2, row), None
    b = y = None
    if bias.value_table is not None:
        c = bias.value_table.to(call.exact).index_select(-2, row)
    if bias.of_keys is not None:
        key_row, k, key_table = bias.of_keys
        b, y = key_table.to(call.exact).index_select(-2, key_row(offsets)), k.to(call.exact)
    q, k, v = call.q, call.k, call.v
    if call.trains or b is not None:
        q, k, v = (x.to(call.exact) for x in (q, k, v))
    return q, k, v, bias.q.to(call.exact), y, a, b, c


def _parts(
    band: DiagonalBand, rows: slice, behind: DiagonalBand, ahead: DiagonalBand
) -> Iterator[tuple[slice, bool]]:
    """Split the keys of the queries `rows` into slices; yield (slice, True if its keys are far).

    Far keys are beyond the reach of the table: on each side all of their offsets share a row.

    In order of keys: the corner below the edge of the band, far keys before, near keys, far keys
    after, and the corner above the other edge. Most parts are empty.
    """
    keys = band.seen(rows)
    # Two rectangles of keys that are far before, or far after, all of these rows. An empty one is
    # at the end of `keys`, so that all keys are near
    before, after = _seen_by_all(behind, rows, keys), _seen_by_all(ahead, rows, keys)
    if before.start == before.stop:
        before = slice(keys.start, keys.start)
    # If reach is 0, far keys before and after are adjacent
    after = slice(max(after.start, before.stop), after.stop)
    if after.start >= after.stop:
        after = slice(keys.stop, keys.stop)
    ends = keys.start, before.start, before.stop, after.start, after.stop, keys.stop
    for n, some in enumerate(itertools.starmap(slice, itertools.pairwise(ends))):
        if n % 2 == 0:
            yield from _tiles(rows, some)
        elif some.start < some.stop:
            yield some, True


def _tiles(rows: slice, keys: slice) -> Iterator[tuple[slice, bool]]:
    """Split the near keys of a block of queries into approximately square tiles."""
    n, m = rows.stop - rows.start, keys.stop - keys.start
    size = max(1, ceil(m / max(1, round(m / n))))
    for start in range(keys.start, keys.stop, size):
        yield slice(start, min(start + size, keys.stop)), False


def _seen_by_all(band: DiagonalBand, rows: slice, keys: slice) -> slice:
    """Return the slice of those `keys` that every query in the slice `rows` can see."""
    if band.width < 1:
        return slice(keys.start, keys.start)
    start = max(keys.start, rows.stop - 1 - band.high)
    return slice(start, max(start, min(keys.stop, rows.start - band.low + 1)))


class TiledTables(TiledBias):
    """The tiles of a `TableBias`, computed from q, k and tables with one row per offset.

    The bias of near pairs is x · a + y · b, and c is added to the values; y, b and c may be None.
    a, b and c, (head or none, query + key − 1, channel), have a row for each difference i − j, the
    largest first.
    """

    by_heads, what = True, "attention by near and far keys"

    def rows(self, table: Tensor, tile: Tile) -> Tensor:
        """Return the rows of a table for the offsets that occur in one tile."""
        table = table if table.ndim == 2 else table[tile.heads]
        return table[..., self.columns(tile), :]

    def near(self, tile: Tile, t: Any, unit: float, texts: slice) -> Tensor:
        x, y, a, b, _ = t
        x = x[texts, tile.heads, tile.rows].flip(2)
        x = x if unit == 1 else x * unit
        columns = x @ self.rows(a, tile).mT
        if _seen_by_all(self.band, tile.rows, tile.keys) != tile.keys:
            # Column c has the difference most − c, which is hidden below `low` and above `high`. A
            # row that sees none of these keys would give NaN with −∞; a very low score is
            # outweighed by the other keys of the row
            most, least = tile.rows.stop - 1 - tile.keys.start, torch.finfo(x.dtype).min / 4
            columns[..., max(0, most - self.band.low + 1) :] = least
            columns[..., : max(0, most - self.band.high)] = least
        bias = skewed(columns, x.shape[2])
        if y is None or b is None:
            return bias
        y = y[texts, tile.heads, tile.keys]
        y = y if unit == 1 else y * unit
        return bias + skewed(y @ self.rows(b, tile).mT, y.shape[2]).mT

    def near_grad(
        self, tile: Tile, t: Any, grads: Any, texts: slice, of_e: Tensor, ds: Tensor
    ) -> None:
        (x, y, a, b, _), (dx, dy, da, db, _) = t, grads
        rows, keys = (texts, tile.heads, tile.rows), (texts, tile.heads, tile.keys)
        dx[rows] += (of_e @ self.rows(a, tile)).flip(2)
        add_to_(self.rows(da, tile), of_e.mT @ x[rows].flip(2))
        if y is not None and b is not None:
            n, m = tile.size
            columns, view = zeros_around(ds, ds.shape[:2], m, n)
            view.copy_(ds.mT)
            dy[keys] += columns @ self.rows(b, tile)
            add_to_(self.rows(db, tile), columns.mT @ y[keys])

    def far(self, tile: Tile, t: Any) -> tuple[Tensor, Tensor | None]:
        x, y, a, b, _ = t
        of_key = None
        if y is not None and b is not None:
            of_key = (y[:, tile.heads, tile.keys] @ self.rows(b, tile).mT).mT
        return (x[:, tile.heads, tile.rows] @ self.rows(a, tile).mT).squeeze(-1), of_key

    def far_grad(self, tile: Tile, t: Any, grads: Any, of_query: Tensor, of_key: Tensor) -> None:
        (x, y, a, b, _), (dx, dy, da, db, _) = t, grads
        rows, keys = (ALL, tile.heads, tile.rows), (ALL, tile.heads, tile.keys)
        of_query, of_key = of_query.unsqueeze(-1), of_key.unsqueeze(-1)
        dx[rows] += of_query @ self.rows(a, tile)
        add_to_(self.rows(da, tile), of_query.mT @ x[rows])
        if y is not None and b is not None:
            dy[keys] += of_key @ self.rows(b, tile)
            add_to_(self.rows(db, tile), of_key.mT @ y[keys])

    def values(self, tile: Tile, t: Any) -> Tensor | None:
        return None if t[4] is None else t[4][self.columns(tile)]

    def values_grad(self, tile: Tile, t: Any, grads: Any, of_values: Tensor) -> None:
        grads[4][self.columns(tile)] += of_values


def add_to_(total: Tensor, x: Tensor) -> None:
    """Add the gradient x to `total`, after summing x to the shape of `total`."""
    total += x.sum_to_size(total.shape)
