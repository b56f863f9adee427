"""Attention with a bias of distance alone, which the kernel reads out of one vector for each head.

    bias[i, j] = f(step · (i − j) + shift)          positions at equal steps
    rows read backwards, i = i₁ − 1 − r:  bias[r, j] = u[r + j + const],  strides (1, 1)

A matrix that is constant along its anti-diagonals is a strided view, and torch's CPU kernel for
`scaled_dot_product_attention` reads any strides: no tokens² is ever made, forward or backward. What
a mask hides at either end of the offsets is −∞ in u, and tiles beyond it are never computed.

A term is also cut where it cannot count. With |q·k|·scale ≤ M, every row seeing an offset of bias
c, and n keys, the keys with a bias below

    c − 2M − ln(n / ε) − ln(max‖v‖ / min‖v‖),       ε = 2⁻²⁴ in float32

weigh together less than ε min‖v‖ / max‖v‖, so what they add is less than ε Σ weight ‖v‖: less than
one rounding of the sum. M is measured, max‖q‖ max‖k‖ scale, so a key of huge norm is not cut, and
nothing is assumed of f. For ALiBi it leaves a window for each head; it also keeps exp() from
numbers so small that processors handle them slowly.

The gradients come from the kernel's own backward on the same view; those of a learned u are the
anti-diagonal sums of dscores, made again a few rows at a time. There is no second derivative.
"""

from math import e, log, log2
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.kernel import flash, flash_backward
from posenc.attention.cpu.sinks import (
    fitted,
    gradient,
    joined,
    refuse_second_derivative,
    weight,
    widened,
)
from posenc.attention.spacing import Strip

FEWEST_ROWS = 128  # the fewest rows worth a call of the kernel
WORTH_CUTTING = 512  # the fewest rows of which far terms cost more than to find them
# Scores of several texts at a time: 1 MB in float32, as much as the nearest cache holds
CACHED_SCORES = 2**18
LOG2_E = log2(e)
MOST_SCORES = 2**21  # scores made again at a time for the gradient of u: 8 MB in float32


class Tile(NamedTuple):
    """Some heads, some of their queries, and the keys that these see."""

    heads: slice
    rows: slice
    keys: slice


def view(call: Call, strip: Strip, steps: tuple[int, int]) -> Tensor:
    """Compute attention of a call without a bias, or with one of distance."""
    q, k, v = fitted(call.q, call.k, call.v)
    bias = call.bias
    u = vector(call, strip, steps)
    learned, sinks = u.requires_grad and torch.is_grad_enabled(), call.sinks
    tiles = tiled(strip, slice(0, q.shape[1]))
    if not learned and bias is not None and strip.queries >= WORTH_CUTTING:
        u = u.detach()
        tiles = cut_negligible(u, q, k, v, call.scale, strip) or tiles
    # With a learned bias the kernel runs in float32 anyhow
    if sinks is not None and not learned:
        q, k, v = widened(q, k, v, sinks)
    if learned or call.trains:
        out: Tensor = Viewed.apply(q, k, v, u, sinks, strip, tiles, call.scale)[0]  # type: ignore
    elif sinks is not None:
        lse = u.new_zeros(q.shape[:3])
        out = joined(_forward(q, k, v, u, tiles, call.scale, lse), lse, sinks)[0]
    else:
        out = _forward(q, k, v, u, tiles, call.scale)
    out = out.to(call.q.dtype)
    return out if out.shape[-1] == call.v.shape[-1] else out[..., : call.v.shape[-1]]


def vector(call: Call, strip: Strip, steps: tuple[int, int]) -> Tensor:
    """The vector u, (head, query + key − 1): the bias along r + j, −∞ where no query sees."""
    bias, heads, exact, device = call.bias, call.q.shape[1], call.exact, call.q.device
    ends = (strip.queries - 1 - strip.high, strip.low + strip.keys - 1)
    # A mask alone is one row of 0 and −∞, which serves all heads
    if bias is None:
        zeros = torch.zeros(1, strip.width, dtype=exact, device=device)
        u = F.pad(zeros, ends, value=float("-inf"))
        return u.expand(heads, -1)
    f = bias.distance
    assert f is not None

    step, shift = steps
    offsets = step * torch.arange(strip.high, strip.low - 1, -1, device=device) + shift
    head = torch.arange(heads, device=device).unsqueeze(-1)
    seen = f(head, offsets).expand(heads, -1).to(exact)
    return F.pad(seen, ends, value=float("-inf")).contiguous()


def cut_negligible(
    u: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, strip: Strip
) -> list[Tile] | None:
    """Set u to −∞ where it cannot count, and return the tiles that are left; None: all are.

    See the head of this file for the bound.
    """
    rows_all_see = strip.within(strip.queries - strip.keys, 0)
    # There is no offset that every row sees
    if rows_all_see.width < 1:
        return None
    last = strip.queries - 1
    # Difference i − j stands at last − (i − j) in u. c, (head,): the best bias that all rows see.
    common = u[:, last - rows_all_see.high : last - rows_all_see.low + 1].amax(-1)
    never = common + log(torch.finfo(u.dtype).eps / 2 / strip.keys)  # c − ln(n / ε)
    if not (u[:, last - strip.high : last - strip.low + 1] < never.unsqueeze(-1)).any():
        # No bound on the scores, M, hides a term there.
        return None
    groups, spread = k.shape[1], spread_of_weights(q, k, v, scale).to(u.dtype)
    # A comparison with NaN is False, so nothing is dropped then
    gone = u < (never - spread).unsqueeze(-1)
    u.masked_fill_(gone, float("-inf"))
    # `argmax` of zeros and ones is the first 1: where the part of u that is left begins, and, read
    # backwards, where it ends, for each head
    left = (u > float("-inf")).to(torch.uint8)
    first, end = left.argmax(-1).tolist(), (u.shape[-1] - left.flip(-1).argmax(-1)).tolist()
    tiles = []
    widths = [b - a for a, b in zip(first, end, strict=True)]
    for some in runs_of_like_width(widths, q.shape[1] // groups):
        high, low = last - min(first[some]), last + 1 - max(end[some])
        tiles += tiled(strip.within(low, high), some)
    return tiles


def spread_of_weights(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """The 2M + ln(max‖v‖ / min‖v‖) of each head of the queries, see the head of this file."""
    group = q.shape[1] // k.shape[1]
    q_most, k_most = (_norms(x).amax((0, 2)) for x in (q, k))
    of_values = _norms(v)
    v_most, v_least = of_values.amax((0, 2)), of_values.amin((0, 2))
    # With a margin for the rounding of the norms
    most = q_most * k_most.repeat_interleave(group) * (abs(scale) * 1.001)
    return 2 * most + (v_most / v_least).log().repeat_interleave(group)


def _norms(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(
        x.detach(), dim=-1, dtype=torch.promote_types(x.dtype, torch.float32)
    )


def runs_of_like_width(widths: list[int], group: int) -> list[slice]:
    """Runs of heads whose widths differ by less than a factor of 2, each on one head of keys."""
    runs, start = [], 0
    for h in range(1, len(widths) + 1):
        run = widths[start : h + 1]
        apart = h == len(widths) or max(run) >= 2 * min(run)
        if apart or (group > 1 and h % group == 0):
            runs.append(slice(start, h))
            start = h
    return runs


def tiled(strip: Strip, heads: slice, most: int | None = None) -> list[Tile]:
    """Tiles that cover the strip; the fewer rows in each, the fewer hidden pairs are computed."""
    rows, width, tiles = strip.rows, strip.high - strip.low + 1, []
    step = max(FEWEST_ROWS, min(-(-len(rows) // 8), width // 2)) if most is None else most
    for start in rows[::step]:
        some = slice(start, min(start + step, rows.stop))
        tiles.append(Tile(heads, some, strip.seen(some)))
    return tiles


def _strided(u: Tensor, queries: int, tile: Tile) -> Tensor:
    """The bias of a tile, (1, head, row, key), its rows backwards: a view of u."""
    heads, rows, keys = tile
    shape = (1, heads.stop - heads.start, rows.stop - rows.start, keys.stop - keys.start)
    start = u.storage_offset() + heads.start * u.stride(0) + queries - rows.stop + keys.start
    return u.as_strided(shape, (0, u.stride(0), 1, 1), start)


def _keys_of(x: Tensor, tile: Tile) -> Tensor:
    """Take the keys of a tile; its heads are those of x."""
    return x[:, tile.heads, tile.keys]


def in_key_heads(tile: Tile, q: Tensor, k: Tensor) -> Tile:
    """The tile with its heads counted in heads of the keys, which queries may share."""
    group = q.shape[1] // k.shape[1]
    return tile._replace(heads=slice(tile.heads.start // group, (tile.heads.stop - 1) // group + 1))


def _forward(
    q: Tensor, k: Tensor, v: Tensor, u: Tensor, tiles: list[Tile], scale: float,
    lse: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Compute the output tile by tile; rows that see no key are in none, and stay 0."""
    if (
        len(tiles) == 1
        and lse is None
        and tiles[0][:2] == (slice(0, q.shape[1]), slice(0, q.shape[2]))
    ):
        bias, (_, _, keys) = _strided(u, q.shape[2], tiles[0]), tiles[0]
        backwards = flash(q.flip(2), k[:, :, keys], v[:, :, keys], bias, scale)[0]
        return backwards.flip(2)
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    for tile in tiles:
        heads, rows, _ = tile
        shared = in_key_heads(tile, q, k)
        bias = _strided(u, q.shape[2], tile)
        backwards, sums = flash(
            q[:, heads, rows].flip(2),
            _keys_of(k, shared),
            _keys_of(v, shared),
            bias,
            scale,
        )
        out[:, heads, rows] = backwards.flip(2)
        if lse is not None:
            lse[:, heads, rows] = sums.flip(2)
    return out


class Viewed(torch.autograd.Function):
    """Attention by views with gradients: the output and the log-sum-exp of each row."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, u: Tensor, sinks: Tensor | None, strip: Strip,
        tiles: list[Tile], scale: float,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        lse = u.new_zeros(q.shape[:3])
        return joined(_forward(q, k, v, u, tiles, scale, lse), lse, sinks)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        q, k, v, u, sinks, ctx.strip, ctx.tiles, ctx.scale = inputs
        out, lse = output
        ctx.mark_non_differentiable(lse)
        ctx.save_for_backward(q, k, v, u, sinks, out, lse)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore
        refuse_second_derivative("attention by views")
        q, k, v, u, sinks, out, lse = ctx.saved_tensors
        if ctx.needs_input_grad[3]:
            rest = (lse, sinks, ctx.strip, ctx.scale)
            grads = _gradients_with_learned_bias(grad, q, k, v, u, *rest)
        else:
            of_sinks = None if sinks is None else gradient(grad, out, lse, sinks)
            of_inputs = _gradients(grad, q, k, v, u, out, lse, ctx.tiles, ctx.scale)
            grads = (*of_inputs, None, of_sinks)
        return *grads, None, None, None


def _gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, u: Tensor, out: Tensor, lse: Tensor,
    tiles: list[Tile], scale: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    dq = torch.zeros_like(q)
    dk, dv = torch.zeros_like(k, dtype=u.dtype), torch.zeros_like(v, dtype=u.dtype)
    for tile in tiles:
        heads, rows, _ = tile
        shared = in_key_heads(tile, q, k)
        some_grad, some_q, some_out, some_lse = (
            x[:, heads, rows].flip(2) for x in (grad, q, out, lse)
        )
        for_q, for_k, for_v = flash_backward(
            some_grad, some_q, _keys_of(k, shared), _keys_of(v, shared), some_out, some_lse,
            _strided(u, q.shape[2], tile), scale,
        )  # fmt: skip
        dq[:, heads, rows] = for_q.flip(2)
        _keys_of(dk, shared).add_(for_k)
        _keys_of(dv, shared).add_(for_v)
    return dq, dk.to(k.dtype), dv.to(v.dtype)


def _gradients_with_learned_bias(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, u: Tensor, lse: Tensor, sinks: Tensor | None,
    strip: Strip, scale: float,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Compute the gradients of q, k, v, u and the sinks, a few rows at a time.

    dS = P (dO vᵀ − Σ P dO vᵀ) is made again for these rows; du sums it along r + j. Without sinks a
    row of dS sums to 0. What rounding leaves of it is multiplied by the derivative of the bias,
    which may be large far away. So Σ P dO vᵀ is not taken from the output, which may be rounded to
    16 bits, and P is divided by its sum, which L, a rounded number, leaves near 1.
    """
    exact, (batch, heads, queries, _) = u.dtype, q.shape
    dq, du = torch.zeros_like(q), torch.zeros_like(u)
    dk, dv = (torch.zeros(x.shape, dtype=exact) for x in (k, v))
    # The weight of the sink, (batch, head, query), and its gradient, (head,)
    share = torch.zeros_like(lse) if sinks is None else weight(sinks, lse)
    of_sinks = None if sinks is None else torch.zeros_like(sinks, dtype=exact)
    few = max(16, min(FEWEST_ROWS, MOST_SCORES // (heads * min(strip.keys, strip.width))))
    # Powers of 2 of scores in bits: `exp` takes many times as long where a weight is hidden or tiny
    bits, lse = u * LOG2_E, lse * LOG2_E
    # (text, head, n, x) -> (text · key head, heads that share it · n, x), a view: one product for
    # each text and key head
    by_group = lambda x: x.view(x.shape[0] * k.shape[1], -1, x.shape[-1])  # noqa: E731
    for tile in tiled(strip, slice(0, heads), few):
        _, rows, keys = tile
        n, m = rows.stop - rows.start, keys.stop - keys.start
        # (1, head, n, m), rows backwards, as all rows are below
        bias = _strided(bits, queries, tile)
        most = max(1, CACHED_SCORES // (heads * n * (m + n)))  # texts at a time
        # dS goes into the first m columns; the n columns behind it stay 0, for the skew at the end
        held = u.new_zeros(min(most, batch), heads, n, m + n)
        for start in range(0, batch, most):
            texts = slice(start, min(start + most, batch))
            padded = held[: texts.stop - start]
            some_q, some_grad = (
                x[texts, :, rows].flip(2).to(exact).contiguous() for x in (q, grad)
            )
            some_k, some_v = (x[texts, :, keys].flatten(0, 1).to(exact) for x in (k, v))
            grouped_q = by_group(some_q)
            # P = 2^(bias + scale q kᵀ − L), in bits, (text, head, n, m): L is of all keys, so these
            # are weights
            some_lse, some_share = (x[texts, :, rows, None].flip(2) for x in (lse, share))
            p = torch.sub(bias, some_lse, out=u.new_empty(*padded.shape[:3], m))
            by_group(p).baddbmm_(grouped_q, some_k.mT, alpha=scale * LOG2_E)
            p.exp2_()
            total = p.sum(-1, keepdim=True).add_(some_share)
            # A row of dO divided by `total` divides that row of P in all that follows
            grouped_grad = by_group(some_grad / total)
            # dv = Pᵀ dO, (text · key head, m, value): rows of all heads that share the key are
            # summed
            dv[texts, :, keys].flatten(0, 1).baddbmm_(by_group(p).mT, grouped_grad)
            # dS = P (dO vᵀ − Σ P dO vᵀ), written into `padded`, of which `ds` is a view
            ds = padded[..., :m]
            grouped_ds = by_group(padded)[..., :m]
            torch.bmm(grouped_grad, some_v.mT, out=grouped_ds)
            some_inner = ds.mul_(p).sum(-1, keepdim=True)
            ds.addcmul_(p, some_inner / total, value=-1)
            if of_sinks is not None:
                of_sinks -= (some_share / total * some_inner).sum((0, 2, 3))
            # dq = scale dS k, (text, head, n, channel), turned forwards again; dk = scale dSᵀ q
            dq[texts, :, rows] = torch.bmm(grouped_ds, some_k).view_as(some_q).mul_(scale).flip(2)
            dk[texts, :, keys].flatten(0, 1).baddbmm_(grouped_ds.mT, grouped_q, alpha=scale)
            # dS of row r and key j belongs to u[r + j]. Read with rows of m + n − 1 instead of
            # m + n, `padded` has (r, j) in column r + j: r · (m + n) + j = r · (m + n − 1) + r + j.
            # r + j is at most m + n − 2, so no row runs into the next, and the rest is zeros.
            strides = (*padded.stride()[:2], m + n - 1, 1)
            skewed = padded.as_strided((*padded.shape[:3], m + n - 1), strides)
            # Its column 0 is row 0, query i₁ − 1, and the first key, which stand here in u
            first = queries - rows.stop + keys.start
            du[:, first : first + m + n - 1] += skewed.sum((0, 2))
    return dq, dk.to(k.dtype), dv.to(v.dtype), du, of_sinks
