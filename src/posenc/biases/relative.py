"""The bias of FIRE, a ReLU network with one input, and its computation in tiles.

    bias_h(i, j) = Σₙ outer[h, n] · ReLU(wₙ y + bₙ),      y = ψ(pᵢ − pⱼ) · ρ(pᵢ)

Within a tile, y has a minimum and a maximum, so a unit is on for all pairs, off for all pairs, or
changes within the tile. The units that are always on add up to one linear function per head. So the
bias of all heads is one matrix product, (head, 2 + units) · (2 + units, pairs), whose second factor
has the rows 1, y and the units that change, shared by all heads.

For the gradients, dS is multiplied by 1 and y, over all pairs and over the pairs where a changing
unit is on, which gives the gradients of w, b and `outer`. Σ_h slope · dS is the gradient of y.
Memory is not proportional to tokens². Positions must have equal steps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.engine import Tensors, Tile, TiledBias, by_tiles, skewed
from posenc.attention.cpu.sinks import fitted
from posenc.attention.spacing import DiagonalBand
from posenc.compat.tracing import no_autocast, upcast
from posenc.core.biases import ScoreBias, for_query_heads, take
from posenc.core.positions import per_head
from posenc.core.shapes import KeyPositions, PairBias, Positions

ROWS = 64  # queries of a tile


class RelativeBias(ScoreBias):
    """A bias f(head, query position, key position) computed by a ReLU network with one input.

        f(h, pᵢ, pⱼ) = Σₙ outer[h, n] · ReLU(wₙ y + bₙ),      y = ψ(pᵢ − pⱼ) · ρ(pᵢ)

    `factors` is a function of offsets and positions of queries. It returns ψ and ρ, which are at
    least 0, w and b, (unit,), and `outer`, (head, unit).
    """

    view = "only few units of {} change within a tile."

    def __init__(
        self,
        factors: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
        f: Callable[[Tensor, Tensor, Tensor], Tensor],
        q: Tensor,
        q_pos: Positions,
        k_pos: KeyPositions,
    ):
        self.factors = factors
        self.f, self.q_pos, self.heads = f, q_pos, q.shape[1]
        self.k_pos = for_query_heads(k_pos, self.heads)

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        h = torch.arange(self.heads, device=self.q_pos.device).view(1, -1, 1, 1)
        q_pos = per_head(self.q_pos[..., rows]).unsqueeze(-1)
        k_pos = per_head(self.k_pos[..., keys]).unsqueeze(-2)
        return self.f(h, q_pos, k_pos)

    def pair(self) -> PairBias:
        q_pos, k_pos = take(self.q_pos), take(self.k_pos)
        return lambda b, h, i, j: self.f(h, q_pos(b, h, i), k_pos(b, h, j))

    def attended(self, call: Call, band: DiagonalBand) -> Tensor:
        assert self.steps is not None
        step, shift = self.steps
        q, k, v = fitted(call.q, call.k, call.v)
        with no_autocast(q):
            # All differences i − j in the order of columns, the largest first
            apart = torch.arange(band.queries - 1, -band.keys, -1, device=q.device)
            queries = torch.arange(band.queries, device=q.device)
            tensors = self.factors(step * apart + shift, step * queries + self.q_pos.flatten()[0])
            if call.trains:
                q, k, v = upcast(q), upcast(k), upcast(v)
            terms = TiledRelative(band, tensors, call.trains)
            out = by_tiles(q, k, v, terms, call.sinks, call.scale, call.trains)
        return out[..., : call.v.shape[-1]].to(call.q.dtype)


class Units(NamedTuple):
    """Indices of the hidden units that are active in all of a tile, or in a part of it."""

    on: list[int]
    bend: list[int]


class TiledRelative(TiledBias):
    """The tiles of a `RelativeBias`, computed from inputs and weights of its ReLU network."""

    whole, joins, has_extra, what = True, False, True, "attention with a network of distance"

    def __init__(self, band: DiagonalBand, tensors: Tensors, learned: bool):
        self.band, self.tensors, self.learned = band, tuple(tensors), learned
        heads = slice(0, len(tensors[4]))
        rows = [slice(s, min(s + ROWS, band.rows.stop)) for s in band.rows[::ROWS]]
        self.tiles = [Tile(heads, some, band.seen(some)) for some in rows]
        psi, rho, w, b, _ = (x.detach() for x in tensors)
        self.weights = w.tolist()
        self.units = {}
        for tile in self.tiles:
            # Both ψ and ρ are at least 0
            of_psi, of_rho = psi[self.columns(tile)], rho[tile.rows]
            low, high = of_psi.min() * of_rho.min(), of_psi.max() * of_rho.max()
            one, other = w * low + b, w * high + b
            on, off = (one > 0) & (other > 0), (one <= 0) & (other <= 0)
            # Both are False for NaN, which changing units propagate
            on, bend = on.nonzero().flatten().tolist(), (~(on | off)).nonzero().flatten().tolist()
            self.units[tile.rows.start] = Units(on, bend)

    def columns(self, tile: Tile) -> slice:
        first = self.band.queries - tile.rows.stop + tile.keys.start
        return slice(first, first + sum(tile.size) - 1)

    def basis(self, tile: Tile, t: Tensors, size: int) -> tuple[Tensor, Tensor]:
        """Return a buffer for the hidden units of one tile, and the input y of the ReLU network.

        The buffer, (size, query, key), begins with a matrix of ones and y = ψ · ρ.
        """
        psi, rho, *_ = t
        numbers = psi.new_empty(size, *tile.size)
        numbers[0], y = 1, numbers[1]
        view = skewed(psi[self.columns(tile)].unsqueeze(0), *tile.size)
        torch.mul(view, rho[tile.rows].flip(0).unsqueeze(-1), out=y)
        return numbers, y

    def extra(self, tile: Tile, t: Tensors, unit: float) -> Tensor:
        _, _, w, b, outer = t
        on, bend = self.units[tile.rows.start]
        numbers, y = self.basis(tile, t, 2 + len(bend))
        for n, relu in zip(bend, numbers[2:], strict=True):
            torch.add(b[n], y, alpha=self.weights[n], out=relu).clamp_min_(0)
        lines = torch.stack((outer[:, on] @ b[on], outer[:, on] @ w[on]), 1)
        terms = torch.cat((lines, outer[:, bend]), 1) * unit  # (head, 2 + bends)
        bias = (terms @ numbers.flatten(1)).view(1, -1, *tile.size)
        self.hide(tile, bias)
        return bias

    def hide(self, tile: Tile, bias: Tensor) -> None:
        """Set the bias to −∞ at masked query-key pairs, which are in two corners of the tile."""
        band, rows, keys = self.band, tile.rows, tile.keys
        i = torch.arange(rows.stop - 1, rows.start - 1, -1).unsqueeze(-1)
        for some in (
            slice(max(0, rows.start - band.low + 1 - keys.start), tile.size[1]),
            slice(0, max(0, rows.stop - 1 - band.high - keys.start)),
        ):
            apart = i - torch.arange(keys.start, keys.stop)[some]
            hidden = (apart < band.low) | (apart > band.high)
            bias[..., some].masked_fill_(hidden, float("-inf"))

    def near_grad(
        self, tile: Tile, t: Tensors, grads: Tensors, texts: slice, of_e: Tensor, ds: Tensor
    ) -> None:
        _, rho, w, b, outer = t
        of_psi, of_rho, of_w, of_b, of_outer = grads
        n, m = tile.size
        ds = ds.sum(0).flatten(1)  # (head, pair)
        on, bend = self.units[tile.rows.start]
        bends = len(bend)
        # 1 and y, then 1 where a changing unit is on, then y where it is on
        numbers, y = self.basis(tile, t, 2 + 2 * bends)
        ones, ys = numbers[2 : 2 + bends], numbers[2 + bends :]
        for unit, one, some_y in zip(bend, ones, ys, strict=True):
            torch.add(b[unit], y, alpha=self.weights[unit], out=some_y)
            torch.gt(some_y, 0, out=one)
            torch.mul(one, y, out=some_y)
        sums = ds @ numbers.flatten(1).mT  # (head, 2 + 2 · bends)
        units, lines = on + bend, len(on)
        # Σ dS and Σ dS y over the pairs where a unit is on, (head, unit)
        of_shift = torch.cat((sums[:, :1].expand(-1, lines), sums[:, 2 : 2 + bends]), 1)
        of_slope = torch.cat((sums[:, 1:2].expand(-1, lines), sums[:, 2 + bends :]), 1)
        of_outer[:, units] += of_slope * w[units] + of_shift * b[units]
        of_w[units] += (outer[:, units] * of_slope).sum(0)
        of_b[units] += (outer[:, units] * of_shift).sum(0)
        slopes = torch.cat(((outer[:, on] @ w[on]).unsqueeze(0), (outer * w)[:, bend].mT))
        first, *others = (slopes @ ds).view(-1, n, m)
        of_y: Any = first
        for one, more in zip(ones, others, strict=True):
            of_y.addcmul_(one, more)
        some_rho = rho[tile.rows].flip(0).unsqueeze(-1)
        of_rho[tile.rows] += ((of_y * y).sum(-1) / some_rho.squeeze(-1)).flip(0)
        columns = y.new_zeros(n, n + m - 1)
        torch.mul(of_y, some_rho, out=skewed(columns, n, m))
        of_psi[self.columns(tile)] += columns.sum(0)
