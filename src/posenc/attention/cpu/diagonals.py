"""Attention on the CPU for windows, and for biases that depend only on distance.

    bias[i, j] = f(step · (i − j) + shift)          positions at equal steps
    rows in reverse order, i = i₁ − 1 − r:  bias[r, j] = u[r + j + const],  strides (1, 1)

A matrix that is constant along its anti-diagonals is a strided view of a vector. torch's CPU kernel
for `scaled_dot_product_attention` reads any strides, so memory is not proportional to tokens²,
forward or backward. Masked offsets at either end are −∞ in u, and tiles beyond are not computed.

Negligible terms are skipped too. With |q·k|·scale ≤ M, n keys, and an offset of bias c that every
row sees, the keys with a bias below

    c − 2M − ln(n / ε) − ln(max‖v‖ / min‖v‖),       ε = 2⁻²⁴ in float32

have a total weight of less than ε min‖v‖ / max‖v‖, so their contribution is less than
ε Σ weight ‖v‖, one rounding error of the sum. M is computed, max‖q‖ max‖k‖ scale, so keys of large
norm are not skipped, and f may be any function. For ALiBi a window remains for each head, and exp()
of very small numbers, which is slow on some processors, is avoided.

The gradients come from the kernel's backward with the same view. The gradient of a learned u is the
sum of dS along anti-diagonals, recomputed a few rows at a time. There is no second derivative.
"""

from math import log
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.engine import Tile, TiledBias, by_tiles, skewed
from posenc.attention.cpu.kernel import flash
from posenc.attention.cpu.sinks import widened
from posenc.attention.spacing import DiagonalBand

FEWEST_ROWS = 128  # the smallest number of rows for which a kernel call pays
WORTH_CUTTING = 512  # rows from which the search for negligible terms pays
MOST_SCORES = 2**21  # scores in one step of the gradient of u, 8 MB in float32


def attended(call: Call, band: DiagonalBand) -> Tensor:
    """Compute attention on the CPU for a bias that depends on distance only, or for no bias."""
    steps = (1, 0) if call.bias is None else call.bias.steps
    assert steps is not None
    q, k, v = call.q, call.k, call.v
    u = vector(call, band, steps)
    learned, sinks = u.requires_grad and torch.is_grad_enabled(), call.sinks
    tiles = tiled(band, slice(0, q.shape[1]))
    if not learned and call.bias is not None and band.queries >= WORTH_CUTTING:
        u = u.detach()
        tiles = cut_negligible(u, q, k, v, call.scale, band) or tiles
    # With a learned bias the engine already computes in float32
    if sinks is not None and not learned:
        q, k, v = widened(q, k, v, sinks)
    trains, (_, rows, keys, *_) = learned or call.trains, tiles[0]
    if len(tiles) == 1 and not trains and sinks is None and rows == slice(0, q.shape[2]):
        bias = skewed(u[None, :, None, keys.start : rows.stop + keys.stop - 1], rows.stop)
        return flash(q.flip(2), k[:, :, keys], v[:, :, keys], bias, call.scale)[0].flip(2)
    terms = TiledDistance(band, tiles, (u,), learned)
    return by_tiles(q, k, v, terms, sinks, call.scale, trains)


def vector(call: Call, band: DiagonalBand, steps: tuple[int, int]) -> Tensor:
    """Return a vector u with the bias of each query-key offset, (head, query + key − 1).

    The largest offset comes first. Masked offsets have the bias −∞.
    """
    bias, heads, exact, device = call.bias, call.q.shape[1], call.exact, call.q.device
    ends = (band.queries - 1 - band.high, band.low + band.keys - 1)
    # Without a bias, all heads share one row of 0 and −∞
    if bias is None:
        zeros = torch.zeros(1, band.width, dtype=exact, device=device)
        u = F.pad(zeros, ends, value=float("-inf"))
        return u.expand(heads, -1)
    f = bias.distance
    assert f is not None

    step, shift = steps
    offsets = step * torch.arange(band.high, band.low - 1, -1, device=device) + shift
    head = torch.arange(heads, device=device).unsqueeze(-1)
    seen = f(head, offsets).expand(heads, -1).to(exact)
    return F.pad(seen, ends, value=float("-inf")).contiguous()


def cut_negligible(
    u: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, band: DiagonalBand
) -> list[Tile] | None:
    """Set negligible biases in u to −∞, and return tiles for the other query-key pairs.

    Returns None if no offset can be skipped.

    The bound is in the docstring of this module.
    """
    rows_all_see = band.within(band.queries - band.keys, 0)
    # The bound needs an offset that every row sees
    if rows_all_see.width < 1:
        return None
    last = band.queries - 1
    # u has the difference i − j at last − (i − j). c, (head,), is the best bias that all rows see
    common = u[:, last - rows_all_see.high : last - rows_all_see.low + 1].amax(-1)
    never = common + log(torch.finfo(u.dtype).eps / 2 / band.keys)  # c − ln(n / ε)
    if not (u[:, last - band.high : last - band.low + 1] < never.unsqueeze(-1)).any():
        # No term is negligible, even for M = 0
        return None
    groups, spread = k.shape[1], spread_of_weights(q, k, v, scale).to(u.dtype)
    # A comparison with NaN is False, so nothing is skipped then
    gone = u < (never - spread).unsqueeze(-1)
    u.masked_fill_(gone, float("-inf"))
    # `argmax` of zeros and ones is the index of the first 1. It gives the first remaining entry of
    # u for each head, and in reverse order the last one
    left = (u > float("-inf")).to(torch.uint8)
    first, end = left.argmax(-1).tolist(), (u.shape[-1] - left.flip(-1).argmax(-1)).tolist()
    tiles = []
    widths = [b - a for a, b in zip(first, end, strict=True)]
    for some in runs_of_like_width(widths, q.shape[1] // groups):
        high, low = last - min(first[some]), last + 1 - max(end[some])
        tiles += tiled(band.within(low, high), some)
    return tiles


def spread_of_weights(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Return the bias difference that makes a key negligible, one number for each query head.

    The term ln(n / ε) is left out: a key is negligible if its bias is lower than the bias of
    another key by more than the result plus ln(n / ε).
    """
    group = q.shape[1] // k.shape[1]
    q_most, k_most = (_norms(x).amax((0, 2)) for x in (q, k))
    of_values = _norms(v)
    v_most, v_least = of_values.amax((0, 2)), of_values.amin((0, 2))
    # The factor 1.001 is a margin for the rounding of norms
    most = q_most * k_most.repeat_interleave(group) * (abs(scale) * 1.001)
    return 2 * most + (v_most / v_least).log().repeat_interleave(group)


def _norms(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(
        x.detach(), dim=-1, dtype=torch.promote_types(x.dtype, torch.float32)
    )


def runs_of_like_width(widths: list[int], group: int) -> list[slice]:
    """Group neighbouring heads whose bands of non-negligible keys have similar widths.

    The heads of a group share tiles. The widths in a group differ by a factor below 2.
    """
    runs, start = [], 0
    for h in range(1, len(widths) + 1):
        run = widths[start : h + 1]
        apart = h == len(widths) or max(run) >= 2 * min(run)
        if apart or (group > 1 and h % group == 0):
            runs.append(slice(start, h))
            start = h
    return runs


def tiled(band: DiagonalBand, heads: slice, most: int | None = None) -> list[Tile]:
    """Cover the visible band of query-key pairs with tiles.

    A tile has `most` queries; None chooses a number that suits the width of the band.

    Tiles of fewer queries contain fewer hidden pairs.
    """
    rows, width, tiles = band.rows, band.high - band.low + 1, []
    step = max(FEWEST_ROWS, min(-(-len(rows) // 8), width // 2)) if most is None else most
    for start in rows[::step]:
        some = slice(start, min(start + step, rows.stop))
        tiles.append(Tile(heads, some, band.seen(some)))
    return tiles


class TiledDistance(TiledBias):
    """Tiles of a bias that depends on distance, as strided views of the vector u of biases."""

    whole, joins, by_heads, what = True, False, True, "attention by views"

    def again(self) -> list[Tile]:
        band, heads = self.band, len(self.tensors[0])  # type: ignore
        most = MOST_SCORES // (heads * min(band.keys, band.width))
        return tiled(band, slice(0, heads), max(16, min(FEWEST_ROWS, most)))

    def near(self, tile: Tile, t: Any, unit: float, texts: slice) -> Tensor:
        u = t[0][tile.heads, self.columns(tile)]
        u = u if unit == 1 else u * unit
        return skewed(u.view(1, len(u), 1, -1), tile.rows.stop - tile.rows.start)

    def near_grad(
        self, tile: Tile, t: Any, grads: Any, texts: slice, of_e: Tensor, ds: Tensor
    ) -> None:
        grads[0][tile.heads, self.columns(tile)] += of_e.sum((0, 2))
