"""Attention whose scores fall by a running sum between key and query: one number for each key.

    bias[i, j] = −|cᵢ − cⱼ| = (cᵢ − r) + (r − cⱼ)          c never grows, and keys come first

The softmax does not see cᵢ − r, which is the same for all keys of a row. What is left is a row of
numbers, which torch's CPU kernel reads for all queries with a stride of 0: nothing of tokens² is
made, forward or backward.

Of a long text c is large and float32 too short for it, so queries are taken a few at a time, r is
the c of the last key that the first of them sees, and keys up to that one are a rectangle in which
r − cⱼ is as exact as the bias is. Keys among the queries are a triangle. There r − cⱼ serves where
c falls by little, and else the bias itself. The parts are joined (`parts.py`). Keys of the
rectangle whose weights cannot count are left out by the bound of `toeplitz.py`; with c falling
quickly these are nearly all.

The gradient of cⱼ is the sum of dscores over queries, and that of cᵢ over keys: of two more
channels, 1 and 0 in the queries, 0 and 1 in the keys, the kernel's backward makes just these sums.
There is no second derivative.
"""

from math import isqrt, log
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.kernel import flash, flash_backward
from posenc.attention.cpu.parts import join_
from posenc.attention.cpu.sinks import fitted, gradient, joined, refuse_second_derivative
from posenc.attention.cpu.toeplitz import (
    Tile,
    in_key_heads,
    runs_of_like_width,
    spread_of_weights,
)
from posenc.attention.spacing import Strip
from posenc.core.biases import DecayBias, per_query_head
from posenc.core.tracing import full

ROWS = 256  # queries at a time
# Scores of a head that take less time than cutting them into parts.
FEW_SCORES = 128**2
MOST_SCORES = 2**20  # scores of a triangle whose bias is made at a time: 8 MB in float64
# The most that c falls among the queries of a part, in logits: beyond, float32 loses 2⁻²⁰.
FALL = 16.0


class DecayTile(NamedTuple):
    """Some heads, queries and keys; in a triangle the keys go on to the queries' own."""

    tile: Tile
    triangle: bool
    r: int | None  # the key whose c is taken for r; None: each query takes its own c


def cannot_serve(bias: DecayBias, strip: Strip) -> str:
    """Why the bias is not one number for each key; "" where it is."""
    if strip.high < strip.queries - 1:
        return "the mask hides what is far behind"
    rows = slice(strip.rows.start, strip.rows.stop)
    c, c_key = bias.c[..., rows], bias.c_key[..., strip.seen(rows)]
    i = torch.arange(rows.start, rows.stop, device=c.device)
    of_last_key = c_key[..., (i - strip.low).clamp(max=c_key.shape[-1] - 1)]
    # False for NaN, and where −∞ was added up
    falls = (c_key.diff() <= 0).all() and (c <= of_last_key).all()
    return "" if falls else "a query does not come after all the keys that it sees"


def attended(call: Call, strip: Strip) -> Tensor:
    """Compute attention of a call whose bias is a `DecayBias`, (batch, head, query, value)."""
    bias, sinks = call.bias, call.sinks
    assert isinstance(bias, DecayBias)
    q, k, v = fitted(call.q, call.k, call.v)
    parts = cut(bias, strip, q, k, v, call.scale)
    learned = any([x is not None and x.requires_grad for x in (bias.c, bias.c_key, sinks)])
    learned &= torch.is_grad_enabled()
    if learned:
        # Their gradients are sums of many terms, for each head of the queries
        q, k, v = (per_query_head(full(x), q) for x in (q, k, v))
    if learned or call.trains:
        out: Tensor = Decayed.apply(q, k, v, bias.c, bias.c_key, sinks, parts, call.scale)[0]  # type: ignore
    else:
        out = joined(*_forward(q, k, v, bias.c, bias.c_key, parts, call.scale), sinks)[0]
    return out[..., : call.v.shape[-1]].to(call.q.dtype)


def cut(
    bias: DecayBias, strip: Strip, q: Tensor, k: Tensor, v: Tensor, scale: float
) -> list[DecayTile]:
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
        parts.append(DecayTile(Tile(slice(0, heads), some, own), True, r))
        if last:
            gone = c_key[..., last, None] - c_key[..., :last] < -enough
            firsts = gone.all(0).sum(-1).tolist()
            widths = [last - first for first in firsts]
            for these in runs_of_like_width(widths, heads // k.shape[1]):
                before = slice(min(firsts[these]), last)
                if before.start < last:
                    parts.append(DecayTile(Tile(these, some, before), False, last))
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


def _biases(c: Tensor, c_key: Tensor, part: DecayTile, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The bias r − cⱼ of a part, (batch, head, query, key), and cᵢ − r, (batch, head, query)."""
    heads, rows, keys = part.tile
    c, c_key = c[:, heads, rows].unsqueeze(-1), c_key[:, heads]
    r = c if part.r is None else c_key[..., part.r, None, None]
    bias = (r - c_key[..., keys].unsqueeze(-2)).to(dtype)
    return bias.expand(*c.shape[:3], -1), (c - r).squeeze(-1).to(dtype)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, c: Tensor, c_key: Tensor, parts: list[DecayTile], scale: float
) -> tuple[Tensor, Tensor]:
    """The output, and log-sum-exps in float32 at least; queries that see no key are in no part."""
    exact = torch.promote_types(q.dtype, torch.float32)
    out = torch.zeros_like(q, dtype=exact, memory_format=torch.contiguous_format)
    lse = torch.full(q.shape[:3], float("-inf"), dtype=exact, device=q.device)
    for part in parts:
        heads, rows, keys = part.tile
        shared = in_key_heads(part.tile, q, k).heads
        bias, shift = _biases(c, c_key, part, exact)
        some, some_lse = flash(
            q[:, heads, rows], k[:, shared, keys], v[:, shared, keys], bias, scale, part.triangle
        )
        some_lse = some_lse + shift
        # A triangle is the first part of its queries: it begins their sums.
        if part.triangle:
            out[:, heads, rows], lse[:, heads, rows] = some, some_lse
        else:
            join_(out[:, heads, rows], lse[:, heads, rows], some, some_lse)
    return out, lse


class Decayed(torch.autograd.Function):
    """Attention by parts with gradients: the output and the log-sum-exp of each row."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, c: Tensor, c_key: Tensor, sinks: Tensor | None,
        parts: list[DecayTile], scale: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        out, lse = joined(*_forward(q, k, v, c, c_key, parts, scale), sinks)
        return out.to(q.dtype), lse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.parts, ctx.scale = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore
        refuse_second_derivative("attention with gates")
        q, k, v, c, c_key, sinks, out, lse = ctx.saved_tensors
        of_sinks = None if sinks is None else gradient(grad, out, lse, sinks)
        learned, wide = any(ctx.needs_input_grad[3:5]), q.shape[-1]
        # q and k get two more channels, whose products are 0 in the scores
        if learned:
            q = F.pad(F.pad(q, (0, 1), value=1), (0, 1))
            k = F.pad(F.pad(k, (0, 1)), (0, 1), value=1)
            v, grad, out = (F.pad(x, (0, 2)) for x in (v, grad, out))
        exact = lse.dtype
        dq, dk, dv = (torch.zeros_like(x, dtype=exact) for x in (q, k, v))
        for part in ctx.parts:
            heads, rows, keys = part.tile
            shared = in_key_heads(part.tile, q, k).heads
            bias, shift = _biases(c, c_key, part, exact)
            for_q, for_k, for_v = flash_backward(
                grad[:, heads, rows], q[:, heads, rows], k[:, shared, keys], v[:, shared, keys],
                out[:, heads, rows], lse[:, heads, rows] - shift, bias, ctx.scale, part.triangle,
            )  # fmt: skip
            dq[:, heads, rows] += for_q
            dk[:, shared, keys] += for_k
            dv[:, shared, keys] += for_v
        of_c = of_c_key = None
        # The bias is c − c′, and its two channels have been multiplied by the scale
        if learned:
            of_c = dq[..., -1].to(c.dtype) / ctx.scale
            of_c_key = dk[..., -2].to(c.dtype) / -ctx.scale
        of_inputs = (x[..., :wide].to(q.dtype) for x in (dq, dk, dv))
        return *of_inputs, of_c, of_c_key, of_sinks, None, None
