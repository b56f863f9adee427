"""The bias of forget gates, and attention with this bias on the CPU.

c are the cumulative sums of the logarithms of the gates.

    bias[i, j] = −|cᵢ − cⱼ| = (cᵢ − r) + (r − cⱼ)          c never grows, and keys come first

cᵢ − r is the same for all keys of a row, so the softmax does not depend on it. The remaining bias
is one number per key, a row that torch's CPU kernel reads for all queries with a stride of 0.
Memory is not proportional to tokens², forward or backward.

In a long text c is too large for float32. Queries are therefore computed in blocks. r is the c of
the last key that the first query of the block sees. Keys up to that one form a rectangle, where
r − cⱼ is as exact as the bias. The other keys form a triangle, with r − cⱼ as the bias if c falls
by little, and the bias itself otherwise. The parts are merged (`merge_softmax.py`). Keys of the
rectangle with negligible weights are skipped by the bound in `distance.py`; if c falls quickly,
these are nearly all keys.

The gradient of cⱼ is the sum of dS over queries, and the gradient of cᵢ is the sum over keys. The
kernel's backward computes these sums as the gradients of two more channels, (1, 0) in the queries
and (0, 1) in the keys. There is no second derivative.
"""

from math import isqrt, log
from typing import Any

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.diagonals import runs_of_like_width, spread_of_weights
from posenc.attention.cpu.engine import Tile, TiledBias, by_tiles
from posenc.attention.spacing import DiagonalBand
from posenc.compat.tracing import upcast
from posenc.core.biases import ScoreBias, per_query_head
from posenc.core.shapes import PairBias

ROWS = 256  # queries in a block
MOST_SCORES = 2**20  # scores of a triangle in one block, 8 MB in float64
# The largest fall of c within a triangle, in logits, with an error below 2⁻²⁰ in float32
FALL = 16.0


class DecayBias(ScoreBias):
    """The bias −|cᵢ − c'ⱼ|, from the cumulative log gates c of queries and c' of keys.

    c and c' have shape (batch, head, token).
    """

    few_scores = 128**2
    view = "the bias of {} is one number per key, plus one per query."

    def __init__(self, q: Tensor, c: Tensor, c_key: Tensor):
        self.c, self.c_key = (x.expand(len(q), -1, -1) for x in (c, c_key))
        self.dtype = torch.promote_types(q.dtype, torch.float32)

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        between = self.c[..., rows].unsqueeze(-1) - self.c_key[..., keys].unsqueeze(-2)
        return -between.abs().to(self.dtype)

    def pair(self) -> PairBias:
        return lambda b, h, i, j: -(self.c[b, h, i] - self.c_key[b, h, j]).abs().to(self.dtype)

    def refuses(self, call: Call, band: DiagonalBand) -> str:
        """Return the reason why this bias cannot be split into terms per key and query, or ""."""
        if band.high < band.queries - 1:
            return "the mask hides far keys"
        rows = slice(band.rows.start, band.rows.stop)
        c, c_key = self.c[..., rows], self.c_key[..., band.seen(rows)]
        i = torch.arange(rows.start, rows.stop, device=c.device)
        of_last_key = c_key[..., (i - band.low).clamp(max=c_key.shape[-1] - 1)]
        # Comparisons are False for NaN, and for the difference of two −∞
        falls = (c_key.diff() <= 0).all() and (c <= of_last_key).all()
        return "" if falls else "a query sees keys that come after it"

    def attended(self, call: Call, band: DiagonalBand) -> Tensor:
        sinks, q, k, v = call.sinks, call.q, call.k, call.v
        tiles = cut(self, band, q, k, v, call.scale)
        learned = any([x is not None and x.requires_grad for x in (self.c, self.c_key, sinks)])
        learned &= torch.is_grad_enabled()
        if learned:
            # The gradients of c are sums of many terms for each query head, which need float32
            q, k, v = (per_query_head(upcast(x), q) for x in (q, k, v))
        gates = TiledDecay(band, tiles, self, learned)
        return by_tiles(q, k, v, gates, sinks, call.scale, learned or call.trains)


def cut(
    bias: DecayBias, band: DiagonalBand, q: Tensor, k: Tensor, v: Tensor, scale: float
) -> list[Tile]:
    """Split the visible query-key pairs into causal triangles, and rectangles below them."""
    c_key, rows = bias.c_key.detach(), band.rows
    batch, heads = q.shape[:2]
    most = min(ROWS, max(1, isqrt(MOST_SCORES // (batch * heads))))
    own = _own_keys(band, slice(rows.start, rows.stop))
    most = len(rows) if _largest_decrease(c_key, own) <= FALL else most
    # Keys with a bias that is lower by more than this have negligible weights, (head, 1)
    enough = spread_of_weights(q, k, v, scale).unsqueeze(-1)
    enough = enough + log(2 * band.keys / torch.finfo(bias.dtype).eps)
    parts = []
    for start in rows[::most]:
        some = slice(start, min(start + most, rows.stop))
        own = _own_keys(band, some)
        last = own.start
        r = last if _largest_decrease(c_key, own) <= FALL else None
        parts.append(Tile(slice(0, heads), some, own, far=True, causal=True, origin=r))
        if last:
            gone = c_key[..., last, None] - c_key[..., :last] < -enough
            firsts = gone.all(0).sum(-1).tolist()
            widths = [last - first for first in firsts]
            for these in runs_of_like_width(widths, heads // k.shape[1]):
                before = slice(min(firsts[these]), last)
                if before.start < last:
                    parts.append(Tile(these, some, before, far=True, first=False, origin=last))
    return parts


def _own_keys(band: DiagonalBand, rows: slice) -> slice:
    """Return the keys of the causal triangle for the queries `rows`.

    For queries after the last key, it is the last one.
    """
    start = min(rows.start - band.low, band.keys - 1)
    return slice(start, min(rows.stop - band.low, band.keys))


def _largest_decrease(c: Tensor, keys: slice) -> float:
    """Return the largest decrease of any head's cumulative log gates c over the slice `keys`."""
    some = c[..., keys]
    return float((some[..., 0] - some[..., -1]).amax())


class TiledDecay(TiledBias):
    """The tiles of a `DecayBias`: triangles on the diagonal with rectangles below them."""

    by_heads, what = True, "attention with gates"

    def __init__(self, band: DiagonalBand, tiles: list[Tile], bias: DecayBias, learned: bool):
        super().__init__(band, tiles, (bias.c, bias.c_key), learned)
        self.dtype = bias.dtype

    def far(self, tile: Tile, t: Any) -> tuple[Tensor, Tensor]:
        """Return the bias of a tile as a term per query and a term per key.

        The bias cᵢ − cⱼ is the sum of cᵢ − r and r − cⱼ.

        r is c at the tile's key `origin`; without an origin it is cᵢ, and the first term is 0.
        """
        heads, rows, keys = tile[:3]
        c, c_key = t[0][:, heads, rows].unsqueeze(-1), t[1][:, heads]
        r = c if tile.origin is None else c_key[..., tile.origin, None, None]
        of_key = (r - c_key[..., keys].unsqueeze(-2)).to(self.dtype)
        return (c - r).squeeze(-1).to(self.dtype), of_key

    def far_grad(self, tile: Tile, t: Any, grads: Any, of_query: Tensor, of_key: Tensor) -> None:
        grads[0][:, tile.heads, tile.rows] += of_query
        grads[1][:, tile.heads, tile.keys] -= of_key
