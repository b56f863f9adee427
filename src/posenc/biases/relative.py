"""The bias of FIRE, a ReLU network with one input, and its computation in tiles.

    bias_h(i, j) = Σₙ outer[h, n] · ReLU(wₙ y + bₙ),      y = ψ(pᵢ − pⱼ) · ρ(pᵢ)

Within a tile, y has a minimum and a maximum, so a unit is on for all pairs, off for all pairs, or
changes within the tile. ψ grows ever more slowly: far from the diagonal few units change, and tiles
near it are separate. The units that are always on add up to one linear function per head. So the
bias of all heads is one matrix product, (head, 2 + units) · (2 + units, pairs), whose second factor
has the rows 1, y and the units that change, shared by all heads.

For the gradients, dS is multiplied by 1 and y, over all pairs and over the pairs where a changing
unit is on, which gives the gradients of w, b and `outer`. Σ_h slope · dS is the gradient of y.
Memory is not proportional to tokens². Positions must have equal steps.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.engine import Tensors, Tile, TiledBias, by_tiles, skewed
from posenc.attention.spacing import DiagonalBand
from posenc.compat.tracing import upcast
from posenc.core.biases import ScoreBias, for_query_heads, take
from posenc.core.positions import per_head
from posenc.core.shapes import KeyPositions, PairBias, Positions

ROWS = 128  # queries of a tile, and the width of the tiles next to the diagonal


class RelativeBias(ScoreBias):
    """A bias f(head, query position, key position) computed by a ReLU network with one input.

        f(h, pᵢ, pⱼ) = Σₙ outer[h, n] · ReLU(wₙ y + bₙ),      y = ψ(pᵢ − pⱼ) · ρ(pᵢ)

    `factors` is a function of offsets and positions of queries. It returns ψ and ρ, which are at
    least 0, w and b, (unit,), and `outer`, (head, unit).
    """

    compiles = False
    view = "only few ReLU units of {} switch on or off within a tile."

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
        q, k, v = call.q, call.k, call.v
        # All differences i − j in the order of columns, the largest first
        apart = torch.arange(band.queries - 1, -band.keys, -1, device=q.device)
        queries = torch.arange(band.queries, device=q.device)
        tensors = self.factors(step * apart + shift, step * queries + self.q_pos.flatten()[0])
        if call.trains:
            q, k, v = upcast(q), upcast(k), upcast(v)
        terms = TiledRelative(band, shift // step, tensors, call.trains)
        return by_tiles(q, k, v, terms, call.sinks, call.scale, call.trains)


class TiledRelative(TiledBias):
    """The tiles of a `RelativeBias`, computed from inputs and weights of its ReLU network.

    `ahead` is j − i for the pairs with an offset of 0.
    """

    by_texts, what = False, "attention with a network of distance"

    def __init__(self, band: DiagonalBand, ahead: int, tensors: Tensors, learned: bool):
        super().__init__(band, [], tensors, learned)
        heads = slice(0, len(tensors[4]))
        for start in band.rows[::ROWS]:
            rows = slice(start, min(start + ROWS, band.rows.stop))
            for n, keys in enumerate(_by_distance(band.seen(rows), start + ahead)):
                self.tiles.append(Tile(heads, rows, keys, first=not n))
        psi, rho, w, b, _ = (x.detach() for x in tensors)
        sides = [(psi[self.columns(x)].aminmax(), rho[x.rows].aminmax()) for x in self.tiles]
        # Both ψ and ρ are at least 0
        y = torch.stack([x * y for both in sides for x, y in zip(*both, strict=True)])
        ends = y.view(-1, 2, 1) * w + b
        on = (ends > 0).all(1)
        # Units that are NaN are treated as units that change
        bend = ~(on | (ends <= 0).all(1))
        # The indices of the units that are always on, and of those that change within the tile
        units = [[x.nonzero().flatten() for x in both] for both in zip(on, bend, strict=True)]
        self.units = dict(zip(map(_place, self.tiles), units, strict=True))

    def basis(self, tile: Tile, t: Tensors, size: int, bend: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the network's input y, and w y + b of the hidden units `bend`, for all pairs.

        Returns a tensor (`size`, query, key) that starts with 1 and y and ends with w y + b of each
        unit, and a view of the latter.
        """
        psi, rho, w, b, _ = t
        numbers = psi.new_empty(size, *tile.size)
        numbers[0], units = 1, numbers[size - len(bend) :]
        view = skewed(psi[self.columns(tile)].unsqueeze(0), numbers.shape[1])
        torch.mul(view, rho[tile.rows].flip(0).unsqueeze(-1), out=numbers[1])
        lines = torch.stack((b[bend], w[bend]), 1)
        torch.mm(lines, numbers[:2].flatten(1), out=units.flatten(1))
        return numbers, units

    def near(self, tile: Tile, t: Tensors, unit: float, texts: slice) -> Tensor:
        _, _, w, b, outer = t
        on, bend = self.units[_place(tile)]
        numbers, units = self.basis(tile, t, 2 + len(bend), bend)
        units.clamp_min_(0)
        lines = outer[:, on] @ torch.stack((b[on], w[on]), 1)
        terms = torch.cat((lines, outer[:, bend]), 1) * unit  # (head, 2 + bends)
        bias = (terms @ numbers.flatten(1)).view(1, -1, *tile.size)
        self.hide(tile, bias)
        return bias

    def hide(self, tile: Tile, bias: Tensor) -> None:
        """Set the bias of masked pairs to a very low number.

        With −∞, a row that sees no key of the tile would give NaN.
        """
        (low, high), rows, keys = self.band[2:], tile.rows, tile.keys
        if rows.start - keys.stop + 1 < low or rows.stop - 1 - keys.start > high:
            i = torch.arange(rows.stop - 1, rows.start - 1, -1).unsqueeze(-1)
            apart = i - torch.arange(keys.start, keys.stop)
            least = torch.finfo(bias.dtype).min / 4
            bias.masked_fill_((apart < low) | (apart > high), least)

    def near_grad(
        self, tile: Tile, t: Tensors, grads: Tensors, texts: slice, of_e: Tensor, ds: Tensor
    ) -> None:
        _, rho, w, b, outer = t
        of_psi, of_rho, of_w, of_b, of_outer = grads
        n, m = tile.size
        ds = ds.sum(0).flatten(1)  # (head, pair)
        on, bend = self.units[_place(tile)]
        bends = len(bend)
        # 1 and y, then 1 where a changing unit is on, then y where it is on
        numbers, ys = self.basis(tile, t, 2 + 2 * bends, bend)
        y, ones = numbers[1], torch.gt(ys, 0, out=numbers[2 : 2 + bends])
        torch.mul(ones, y, out=ys)
        sums = ds @ numbers.flatten(1).mT  # (head, 2 + 2 · bends)
        units, lines = torch.cat((on, bend)), len(on)
        # Σ dS and Σ dS y over the pairs where a unit is on, (head, unit)
        of_shift = torch.cat((sums[:, :1].expand(-1, lines), sums[:, 2 : 2 + bends]), 1)
        of_slope = torch.cat((sums[:, 1:2].expand(-1, lines), sums[:, 2 + bends :]), 1)
        of_outer[:, units] += of_slope * w[units] + of_shift * b[units]
        of_w[units] += (outer[:, units] * of_slope).sum(0)
        of_b[units] += (outer[:, units] * of_shift).sum(0)
        slopes = torch.cat(((outer[:, on] @ w[on]).unsqueeze(0), (outer * w)[:, bend].mT))
        of_y, *others = (slopes @ ds).view(-1, n, m)
        for one, more in zip(ones, others, strict=True):
            of_y.addcmul_(one, more)
        some_rho = rho[tile.rows].flip(0).unsqueeze(-1)
        of_rho[tile.rows] += ((of_y * y).sum(-1) / some_rho.squeeze(-1)).flip(0)
        columns = y.new_zeros(n, n + m - 1)
        torch.mul(of_y, some_rho, out=skewed(columns, n))
        of_psi[self.columns(tile)] += columns.sum(0)


def _place(tile: Tile) -> tuple[int, int]:
    return tile.rows.start, tile.keys.start


def _by_distance(keys: slice, diagonal: int) -> list[slice]:
    """Split keys into short slices around the key `diagonal`, and one long slice on each side."""
    ends = [keys.start, *[diagonal + n * ROWS for n in (-1, 0, 1, 2)], keys.stop]
    within = sorted({end for end in ends if keys.start <= end <= keys.stop})
    return [slice(*both) for both in pairwise(within)]
