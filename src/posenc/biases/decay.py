"""The bias of gates that forget: one number per key, a running sum up to each query's own.

    bias[i, j] = −|cᵢ − cⱼ| = (cᵢ − r) + (r − cⱼ)          c never grows, and keys come first

The softmax does not see cᵢ − r, which is the same for all keys of a row. What is left is a row of
numbers, which torch's CPU kernel reads for all queries with a stride of 0: nothing of tokens² is
made, forward or backward.

Of a long text c is large and float32 too short for it, so queries are taken a few at a time, r is
the c of the last key that the first of them sees, and keys up to that one are a rectangle in which
r − cⱼ is as exact as the bias is. Keys among the queries are a triangle. There r − cⱼ serves where
c falls by little, and else the bias itself. The parts are joined (`parts.py`). Keys of the
rectangle whose weights cannot count are left out by the bound of `distance.py`; with c falling
quickly these are nearly all.

The gradient of cⱼ is the sum of dscores over queries, and that of cᵢ over keys: of two more
channels, 1 and 0 in the queries, 0 and 1 in the keys, the kernel's backward makes just these sums.
There is no second derivative.
"""

from math import isqrt, log
from typing import Any

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.engine import Tile, TiledBias, by_tiles
from posenc.attention.cpu.sinks import fitted
from posenc.attention.spacing import Strip
from posenc.biases.distance import runs_of_like_width, spread_of_weights
from posenc.compat.tracing import upcast
from posenc.core.biases import ScoreBias, per_query_head
from posenc.core.shapes import PairBias

ROWS = 256  # queries at a time
MOST_SCORES = 2**20  # scores of a triangle whose bias is made at a time: 8 MB in float64
# The most that c falls among the queries of a part, in logits: beyond, float32 loses 2⁻²⁰.
FALL = 16.0


class DecayBias(ScoreBias):
    """The bias −|cᵢ − c'ⱼ| of running sums of the queries and of the keys, (batch, head, token)."""

    few_scores = 128**2
    view = "the bias of {} is one number for each key, up to each query's own."

    def __init__(self, q: Tensor, c: Tensor, c_key: Tensor):
        self.c, self.c_key = (x.expand(len(q), -1, -1) for x in (c, c_key))
        self.dtype = torch.promote_types(q.dtype, torch.float32)

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        between = self.c[..., rows].unsqueeze(-1) - self.c_key[..., keys].unsqueeze(-2)
        return -between.abs().to(self.dtype)

    def pair(self) -> PairBias:
        return lambda b, h, i, j: -(self.c[b, h, i] - self.c_key[b, h, j]).abs().to(self.dtype)

    def refuses(self, call: Call, strip: Strip) -> str:
        """Return the reason why the bias is not one number for each key, or ""."""
        if strip.high < strip.queries - 1:
            return "the mask hides what is far behind"
        rows = slice(strip.rows.start, strip.rows.stop)
        c, c_key = self.c[..., rows], self.c_key[..., strip.seen(rows)]
        i = torch.arange(rows.start, rows.stop, device=c.device)
        of_last_key = c_key[..., (i - strip.low).clamp(max=c_key.shape[-1] - 1)]
        # False for NaN, and where −∞ was added up
        falls = (c_key.diff() <= 0).all() and (c <= of_last_key).all()
        return "" if falls else "a query does not come after all the keys that it sees"

    def attended(self, call: Call, strip: Strip) -> Tensor:
        sinks, (q, k, v) = call.sinks, fitted(call.q, call.k, call.v)
        tiles = cut(self, strip, q, k, v, call.scale)
        learned = any([x is not None and x.requires_grad for x in (self.c, self.c_key, sinks)])
        learned &= torch.is_grad_enabled()
        if learned:
            # Their gradients are sums of many terms, for each head of the queries
            q, k, v = (per_query_head(upcast(x), q) for x in (q, k, v))
        gates = TiledDecay(tiles, self, learned)
        out = by_tiles(q, k, v, gates, sinks, call.scale, learned or call.trains)
        return out[..., : call.v.shape[-1]].to(call.q.dtype)


def cut(bias: DecayBias, strip: Strip, q: Tensor, k: Tensor, v: Tensor, scale: float) -> list[Tile]:
    """Cut the strip into triangles along its edge and the rectangles before them."""
    c_key, rows = bias.c_key.detach(), strip.rows
    batch, heads = q.shape[:2]
    most = min(ROWS, max(1, isqrt(MOST_SCORES // (batch * heads))))
    own = _own_keys(strip, slice(rows.start, rows.stop))
    most = len(rows) if _fall(c_key, own) <= FALL else most
    # Keys whose bias is lower by more than this weigh nothing: (head, 1)
    enough = spread_of_weights(q, k, v, scale).unsqueeze(-1)
    enough = enough + log(2 * strip.keys / torch.finfo(bias.dtype).eps)
    parts = []
    for start in rows[::most]:
        some = slice(start, min(start + most, rows.stop))
        own = _own_keys(strip, some)
        last = own.start
        r = last if _fall(c_key, own) <= FALL else None
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


def _own_keys(strip: Strip, rows: slice) -> slice:
    """The keys from the last one that the first row sees, to the last one that the last row sees.

    Where queries go on after the last key, it is the last one for all of these.
    """
    start = min(rows.start - strip.low, strip.keys - 1)
    return slice(start, min(rows.stop - strip.low, strip.keys))


def _fall(c: Tensor, keys: slice) -> float:
    """By how much c falls over these keys at most, over all texts and heads."""
    some = c[..., keys]
    return float((some[..., 0] - some[..., -1]).amax())


class TiledDecay(TiledBias):
    """A `DecayBias` for the engine: all tiles are far, and triangles causal."""

    by_heads, what = True, "attention with gates"

    def __init__(self, tiles: list[Tile], bias: DecayBias, learned: bool):
        self.tiles, self.tensors, self.learned = tiles, (bias.c, bias.c_key), learned
        self.dtype = bias.dtype

    def far(self, tile: Tile, t: Any) -> tuple[Tensor, Tensor]:
        """Return cᵢ − r and r − cⱼ; without an origin, r is each query's own c."""
        heads, rows, keys = tile[:3]
        c, c_key = t[0][:, heads, rows].unsqueeze(-1), t[1][:, heads]
        r = c if tile.origin is None else c_key[..., tile.origin, None, None]
        of_key = (r - c_key[..., keys].unsqueeze(-2)).to(self.dtype)
        return (c - r).squeeze(-1).to(self.dtype), of_key

    def far_grad(self, tile: Tile, t: Any, grads: Any, of_query: Tensor, of_key: Tensor) -> None:
        grads[0][:, tile.heads, tile.rows] += of_query
        grads[1][:, tile.heads, tile.keys] -= of_key
