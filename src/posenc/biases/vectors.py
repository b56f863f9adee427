"""The bias of Transformer-XL, and attention with this bias on the CPU.

The bias is the product of a query with a vector for the offset.

    bias[i, j] = x[i] · vectors(pᵢ − pⱼ)

For rows r of a block, E[r, c] = x[r] · vectors(offset of column c) is one matrix product. With
c = j − r + rows − 1, the bias of the block is a view of E with the strides (columns − 1, 1),
without a gather or a copy.

For the gradients a block is recomputed. The gradient of its scores, written with the same strides
into zeros, is the gradient of E, and two more products give the gradients of x and of the vectors.
There is no second derivative. Positions must have equal steps.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import gcd
from threading import local
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.engine import Tile, TiledBias, by_tiles, skewed
from posenc.attention.spacing import DiagonalBand
from posenc.compat.tracing import is_eager_cpu, upcast
from posenc.core.biases import (
    ALL,
    FEW_QUERIES,
    ScoreBias,
    for_query_heads,
    offsets,
    per_query_head,
)
from posenc.core.shapes import KeyPositions, Positions

ROWS, HEADS = 128, 4  # queries and heads of a block, at most
# Offsets per key above which most products would not be used
SPARSE = 4


@dataclass(eq=False)
class VectorBias(ScoreBias):
    """Transformer-XL's bias (u_h · k[j] + (q[i] + v_h) · W_h R(pᵢ − pⱼ)) · scale

    u and v are (head, 1, channel), W = `project` is (head, channel, w), and R = `sinusoids` maps
    positions to (…, token, w): all sines of the angles p θ, then all cosines. By the addition
    formula, with z = Wᵀ(q + v), the second term is a product of a factor of i and a factor of j:

        z · R(a − b) = Σ sin bθ (z' sin aθ − z cos aθ) + cos bθ (z sin aθ + z' cos aθ)
        where z and z' belong to the sine and the cosine of θ
    """

    takes_sinks = False
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
        """The vectors (q + v) · scale of Transformer-XL's position term; v is a learned vector."""
        return (self.q + self.v).to(self.exact) * self.scale

    @property
    def exact(self) -> torch.dtype:
        return torch.promote_types(self.q.dtype, torch.float32)

    @property
    def learns_in_16_bits(self) -> bool:
        """True if gradients are needed and the queries have a 16-bit dtype.

        The gradients of a query nearly cancel over keys with similar sines. With rounding to 16
        bits, the gradient of `project` would be off by several percent.
        """
        learned = (self.q, self.v, self.project)
        trains = torch.is_grad_enabled() and any([x.requires_grad for x in learned])
        return trains and self.q.dtype is not self.exact

    def vectors(self, offset: Tensor) -> Tensor:
        """Return the projected sinusoids W_h R(offset) of each head, (head, offset, channel)."""
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
        """Return the products of vectors z with the sinusoids of all offsets.

        Returns None if this method is not faster, for instance for many queries.

        Offsets are low + size · c + f, with far fewer values of c and f than keys, and thus fewer
        sines.
        """
        if z.shape[-2] > FEW_QUERIES or not is_eager_cpu(self.q_pos, self.k_pos):
            return None
        apart = offsets(self.q_pos, self.k_pos, rows, keys)
        if apart.is_floating_point() or not apart.numel():
            return None
        low, high = map(int, apart.aminmax())
        if high - low > SPARSE * apart.shape[-1]:
            return None
        # R(low + size · c + f) by the addition formula with a = low + size · c and b = −f
        size = 2 ** ((high - low).bit_length() // 2)
        coarse = torch.arange(low, high + 1, size, device=apart.device)
        fine = torch.arange(0, -size, -1, device=apart.device)
        table = self.table(torch.cat((coarse, fine))).squeeze(0)
        at_coarse = turned(z.unsqueeze(-2), table[: len(coarse)])
        products = (at_coarse @ table[len(coarse) :].mT).flatten(-2)
        return products.gather(-1, (apart - low).expand(*z.shape[:3], -1))

    def tables(self) -> tuple[Tensor, Tensor]:
        """Return the sinusoids of the positions of queries and of keys, computed on first use."""
        if self.of_positions is None:
            self.of_positions = self.table(self.q_pos), self.table(self.k_pos)
        return self.of_positions

    def table(self, pos: Tensor) -> Tensor:
        """Return the sinusoids of positions, (*batch, 1 or head, token, channel)."""
        sinusoids = self.sinusoids(pos).to(self.exact).to(pos.device)
        return sinusoids if pos.ndim == 3 else sinusoids.unsqueeze(-3)

    def absorbed(self, q: Tensor, k: Tensor, wholly: bool) -> tuple[Tensor, Tensor, Any]:
        """Fold a part of the bias into q and k, and return q, k and the remaining bias.

        The term of u is added to q. With `wholly`, all other terms become channels of q and k, or
        nothing is folded if 16-bit queries need gradients.
        """
        dtype = q.dtype
        if wholly and self.learns_in_16_bits:
            return q, k, self
        # Another bias of a sum may have appended channels already
        if self.u is not None:
            q = q + F.pad(self.u, (0, q.shape[-1] - self.u.shape[-1]))
        if not wholly:
            return q.to(dtype), k, replace(self, u=None)
        z = (self.q + self.v).to(self.exact) @ self.project.to(self.exact)
        q_table, k_table = self.tables()
        q = torch.cat((q, turned(z, q_table)), -1)
        # Positions differ between heads
        if k_table.shape[-3] != 1:
            k = per_query_head(k, self.q)
        k = torch.cat((k, k_table.to(dtype).expand(*k.shape[:-1], -1)), -1)
        return q.to(dtype), k, None

    def terms(self) -> dict[str, ScoreBias]:
        """Return the terms of the bias by their names in the Transformer-XL paper."""
        none, nobody = torch.zeros_like(self.q), torch.zeros_like(self.v)
        return {
            "u·k": replace(self, q=none, v=nobody),
            "q·r": replace(self, u=None, v=nobody),
            "v·r": replace(self, u=None, q=none),
        }

    def attended(self, call: Call, band: DiagonalBand) -> Tensor:
        """Compute attention in tiles, for queries to which the vector u has already been added."""
        assert self.steps is not None
        step, shift = self.steps
        q, k, v = call.q, call.k, call.v
        # All differences i − j of any block in the order of columns, the largest first
        end = max(-band.keys, band.low - ROWS)
        apart = torch.arange(_largest(band), end, -1, device=q.device)
        vectors = self.vectors(step * apart + shift)  # (head, difference, channel)
        if call.trains:
            q, k, v = upcast(q), upcast(k), upcast(v)
        terms = TiledVectors(band, self.x, vectors, q.shape[1] // k.shape[1], call.trains)
        return by_tiles(q, k, v, terms, None, call.scale, call.trains)


def turned(z: Tensor, table: Tensor) -> Tensor:
    """Return vectors y with y · R(b) = z · R(a − b) for all b, where `table` is R(a).

    R(p) has the sines and cosines of p θ; this is the addition formula.
    """
    of_sin, of_cos = z.chunk(2, -1)
    sin, cos = table.chunk(2, -1)
    to_sin = torch.addcmul(of_cos * sin, of_sin, cos, value=-1)
    return torch.cat((to_sin, torch.addcmul(of_sin * sin, of_cos, cos)), -1)


class TiledVectors(TiledBias):
    """The tiles of a `VectorBias`: products of the queries x with a vector for each offset."""

    joins, by_heads, what = False, True, "attention by skewed blocks"

    def __init__(self, band: DiagonalBand, x: Tensor, vectors: Tensor, group: int, learned: bool):
        super().__init__(band, [*_tiles(band, x.shape[1], group)], (x, vectors), learned)
        self.largest, self.held = _largest(band), local()

    def room(self, x: Tensor) -> Tensor:
        """Return the thread's buffer for the bias of one tile.

        The next tile overwrites the buffer.
        """
        if not hasattr(self.held, "room"):
            size = len(self.tensors[0]) * HEADS * ROWS * (self.band.keys + ROWS)  # type: ignore
            self.held.room = x.new_empty(size)
        return self.held.room

    def near(self, tile: Tile, t: Any, unit: float, texts: slice) -> Tensor:
        x = t[0][texts, tile.heads, tile.rows].flip(2)
        vectors = t[1][tile.heads, self.columns(tile)]
        shape = (*x.shape[:3], vectors.shape[1])
        products = self.room(x)[: x[..., 0].numel() * shape[-1]].view(shape)
        torch.matmul(x if unit == 1 else x * unit, vectors.mT, out=products)
        # Column c has the difference most − c, which is hidden below `low` and above `high`
        most = tile.rows.stop - 1 - tile.keys.start
        products[..., max(0, most - self.band.low + 1) :] = float("-inf")
        products[..., : max(0, most - self.band.high)] = float("-inf")
        return skewed(products, x.shape[2])

    def near_grad(
        self, tile: Tile, t: Any, grads: Any, texts: slice, of_e: Tensor, ds: Tensor
    ) -> None:
        (x, vectors), (dx, dvectors), some = t, grads, self.columns(tile)
        dx[texts, tile.heads, tile.rows] += (of_e @ vectors[tile.heads, some]).flip(2)
        rows = x[texts, tile.heads, tile.rows].flip(2)
        dvectors[tile.heads, some] += (of_e.mT @ rows).sum(0)


def _largest(band: DiagonalBand) -> int:
    """Return the largest difference between query index i and key index j in any tile."""
    return min(band.queries - 1, band.high + ROWS)


def _tiles(band: DiagonalBand, heads: int, group: int) -> Iterator[Tile]:
    # The heads of a tile must share their keys
    some = HEADS if group == 1 else gcd(group, HEADS)
    for start in band.rows[::ROWS]:
        rows = slice(start, min(start + ROWS, band.rows.stop))
        for h in range(0, heads, some):
            yield Tile(slice(h, min(h + some, heads)), rows, band.seen(rows))
