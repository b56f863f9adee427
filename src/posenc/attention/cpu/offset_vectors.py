"""Attention with a bias of content by offset: a product for each block of offsets, read skewed.

    bias[i, j] = x[i] · vectors(pᵢ − pⱼ)

For rows r of a block, E[r, c] = x[r] · vectors(offset of column c) is one matrix product; with
c = j − r + rows − 1 the bias of the block is E read with the strides (columns − 1, 1), so nothing
is gathered and nothing copied.

For the gradients a block is made again: those of its scores, written with the same strides into
zeros, are those of E, and two more products take them to x and to the vectors. There is no second
derivative. For positions at equal steps.
"""

from collections.abc import Iterator
from threading import local
from typing import Any

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.engine import Tile, TiledBias, by_tiles
from posenc.attention.cpu.sinks import fitted
from posenc.attention.spacing import Strip
from posenc.biases.offsets import VectorBias
from posenc.compat.tracing import full, in_full

ROWS, HEADS = 128, 2  # queries and heads of a block


def skewed(call: Call, strip: Strip, steps: tuple[int, int]) -> Tensor:
    """Compute attention of a call whose bias is a `VectorBias` without u."""
    bias, (step, shift) = call.bias, steps
    assert isinstance(bias, VectorBias)
    q, k, v = fitted(call.q, call.k, call.v)
    # All differences i − j that a block may ask for, largest first, as columns run
    end = max(-strip.keys, strip.low - ROWS)
    apart = torch.arange(_largest(strip), end, -1, device=q.device)
    with in_full(q):
        vectors = bias.vectors(step * apart + shift)  # (head, difference, channel)
        q, k, v = (full(q), full(k), full(v)) if call.trains else (q, k, v)
        terms = TiledVectors(strip, bias.x, vectors, q.shape[1] // k.shape[1], call.trains)
        out = by_tiles(q, k, v, terms, None, call.scale, call.trains)
    return out[..., : call.v.shape[-1]].to(call.q.dtype)


class TiledVectors(TiledBias):
    """A `VectorBias` for the engine; its tensors are x and the vectors of all differences."""

    what, joins = "attention by skewed blocks", False

    def __init__(self, strip: Strip, x: Tensor, vectors: Tensor, group: int, learned: bool):
        self.strip, self.tensors, self.learned = strip, (x, vectors), learned
        self.tiles = list(_tiles(strip, x.shape[1], group))
        self.held = local()

    def room(self, x: Tensor) -> Tensor:
        """Return memory for E of any tile, the same one for all tiles of a thread."""
        if not hasattr(self.held, "room"):
            size = len(self.tensors[0]) * HEADS * ROWS * (self.strip.keys + ROWS)  # type: ignore
            self.held.room = x.new_empty(size)
        return self.held.room

    def columns(self, tile: Tile) -> slice:
        first = _largest(self.strip) - (tile.rows.stop - 1 - tile.keys.start)
        return slice(first, first + sum(tile.size) - 1)

    def near(self, tile: Tile, t: Any, unit: float, texts: slice) -> Tensor:
        x, vectors = (
            t[0][texts, tile.heads, tile.rows].flip(2),
            t[1][tile.heads, self.columns(tile)],
        )
        shape = (*x.shape[:3], vectors.shape[1])
        products = self.room(x)[: x[..., 0].numel() * shape[-1]].view(shape)
        torch.matmul(x if unit == 1 else x * unit, vectors.mT, out=products)
        # Column c has the difference most − c: hidden below `low`, and above `high`
        most = tile.rows.stop - 1 - tile.keys.start
        products[..., max(0, most - self.strip.low + 1) :] = float("-inf")
        products[..., : max(0, most - self.strip.high)] = float("-inf")
        return products

    def near_grad(
        self, tile: Tile, t: Any, grads: Any, texts: slice, of_e: Tensor, ds: Tensor
    ) -> None:
        (x, vectors), (dx, dvectors), some = t, grads, self.columns(tile)
        dx[texts, tile.heads, tile.rows] += (of_e @ vectors[tile.heads, some]).flip(2)
        rows = x[texts, tile.heads, tile.rows].flip(2)
        dvectors[tile.heads, some] += (of_e.mT @ rows).sum(0)


def _largest(strip: Strip) -> int:
    """The largest difference i − j that a block may ask for."""
    return min(strip.queries - 1, strip.high + ROWS)


def _tiles(strip: Strip, heads: int, group: int) -> Iterator[Tile]:
    # The heads of a tile must share their keys
    some = HEADS if group % HEADS == 0 or group == 1 else 1
    for start in strip.rows[::ROWS]:
        rows = slice(start, min(start + ROWS, strip.rows.stop))
        for h in range(0, heads, some):
            yield Tile(slice(h, min(h + some, heads)), rows, strip.seen(rows))
