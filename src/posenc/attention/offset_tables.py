"""Attention with rows of a table for each offset, all offsets beyond a reach sharing one row.

    score(i, j) = qᵢ · kⱼ · scale + by_query[i, row(δ)] + by_key[j, back(δ)],      δ = pᵢ − pⱼ

Near by, |δ| < reach, scores are made as they are defined. For all keys further off, the first term
is one number for each query and the second one number for each key: torch's kernel computes them
without a table, and what is added to their values is one vector. The parts are joined by their
log-sum-exps L:

    out = Σ exp(L_part − L) out_part,      L = ln Σ exp(L_part)

Memory O(rows · (rows + reach)); for positions at equal steps, without gradients.
"""

from math import ceil, floor
from typing import Any

import torch
from torch import Tensor

from posenc.attention.call import Call, per_query_head
from posenc.attention.spacing import Strip
from posenc.attention.toeplitz import fitted, flash
from posenc.core.biases import ByRow, away
from posenc.core.cache import kept

ROWS = 256


def one_query(call: Call, strip: Strip, steps: tuple[int, int]) -> Tensor:
    """(batch, head, 1, value), of a call with one query and a `ByRow`, as in decoding.

    The definition, with all that is the same for keys further off than `reach` left to the softmax,
    which does not see a constant, or added to the query: only keys near by are looked up.
    """
    bias, (step, shift) = call.bias, steps
    assert isinstance(bias, ByRow)
    keys = strip.seen(slice(0, 1))
    first = min(max(keys.start, (shift - bias.reach) // step + 1), keys.stop)  # of those near by
    near = slice(first, keys.stop)
    made_of = (bias.q_pos, bias.k_pos, bias.of, bias.of_key, bias.values)
    rows, far, of_key, end, values, value = kept(
        bias.k_pos, ("one query", near.start, near.stop, call.exact), made_of,
        lambda: _placed(bias, near, call.exact),
    )  # fmt: skip
    batch, heads, _, _channels = call.q.shape
    q, k, v = call.q * call.scale, call.k[:, :, keys], call.v[:, :, keys]
    grouped = (batch, k.shape[1], heads // k.shape[1], -1)
    x = q if end is None else q + end
    scores = (x.view(grouped) @ k.mT).view(batch, heads, 1, -1)
    of_query = bias.by_query.index_select(-1, rows).sub_(bias.by_query[..., far])
    if of_key is not None:
        k_near = per_query_head(call.k[:, :, near], q)
        of_query += torch.linalg.vecdot(k_near, of_key).unsqueeze(-2)
    count = near.stop - near.start
    by_near = slice(scores.shape[-1] - count, None)
    scores[..., by_near] += of_query
    weights = scores.softmax(-1)
    out = (weights.view(grouped) @ v).view(batch, heads, 1, -1)
    return out if values is None else out.add_(value).add_(weights[..., by_near] @ values)


def _placed(bias: ByRow, near: slice, exact: torch.dtype) -> tuple[Any, ...]:
    """Rows of the keys near by and of those far behind, and the tables less what is far behind."""
    apart = away(bias.q_pos, bias.k_pos, slice(0, 1), near)[0, 0, 0]
    at = torch.tensor([bias.reach])
    rows, far = bias.row(apart), bias.row(at)
    of_key = end = values = value = None
    if bias.back is not None and bias.of_key is not None:
        end = bias.of_key[..., bias.back(at), :]
        of_key = bias.of_key.index_select(-2, bias.back(apart)) - end
    if bias.values is not None:
        value = bias.values[far].to(exact)  # they are parameters, of a dtype of their own
        values = bias.values[rows].to(exact) - value
    return rows, far, of_key, end, values, value


def near_and_far(call: Call, strip: Strip, steps: tuple[int, int]) -> Tensor:
    """(batch, head, query, value), of a call whose bias is a `ByRow`."""
    bias, (step, shift) = call.bias, steps
    assert isinstance(bias, ByRow)
    behind = strip.within(ceil((bias.reach - shift) / step), strip.high)
    ahead = strip.within(strip.low, floor((-bias.reach - shift) / step))
    out = call.q.new_zeros(*call.q.shape[:-1], call.v.shape[-1])
    far = _Far(call, bias)
    for start in strip.rows[::ROWS]:
        rows = slice(start, min(start + ROWS, strip.rows.stop))
        keys = strip.seen(rows)
        before, after = _all(behind, rows, keys), _all(ahead, rows, keys)
        if before.start == before.stop:
            before = slice(keys.start, keys.start)
        after = slice(max(after.start, before.stop), after.stop)  # they meet where reach is 0
        if after.start >= after.stop:
            after = slice(keys.stop, keys.stop)
        parts = [
            _near(call, bias, strip, rows, slice(keys.start, before.start)),
            far.part(bias.reach, rows, before),
            _near(call, bias, strip, rows, slice(before.stop, after.start)),
            far.part(-bias.reach, rows, after),
            _near(call, bias, strip, rows, slice(after.stop, keys.stop)),
        ]
        out[:, :, rows] = _joined([part for part in parts if part is not None])
    return out


def _all(strip: Strip, rows: slice, keys: slice) -> slice:
    """The keys that lie in the strip for every one of these rows."""
    if strip.width < 1:
        return slice(keys.start, keys.start)
    start = max(keys.start, rows.stop - 1 - strip.high)
    return slice(start, max(start, min(keys.stop, rows.start - strip.low + 1)))


Part = tuple[Tensor, Tensor]  # out (batch, head, query, value), log-sum-exp (batch, head, query)


def _joined(parts: list[Part]) -> Tensor:
    (out, lse), *others = parts
    for made, sums in others:
        out = torch.lerp(out, made, (sums - lse).sigmoid().unsqueeze(-1))
        lse = torch.logaddexp(lse, sums)
    return out


class _Far:
    """Keys at offsets of `end` and beyond."""

    def __init__(self, call: Call, bias: ByRow):
        self.call, self.bias = call, bias
        self.q, self.k, self.v = fitted(call.q, call.k, call.v)

    def part(self, end: int, rows: slice, keys: slice) -> Part | None:
        if keys.start == keys.stop:
            return None
        call = self.call
        of_query, of_key = self.bias.end(end, rows, keys)
        if of_key is not None:
            shape = (*of_key.shape[:2], rows.stop - rows.start, of_key.shape[-1])
            of_key = of_key.to(call.exact).contiguous().unsqueeze(-2).expand(shape)
        out, lse = flash(
            self.q[:, :, rows], self.k[:, :, keys], self.v[:, :, keys],
            attn_mask=of_key, scale=call.scale,
        )  # fmt: skip
        out = out[..., : call.v.shape[-1]].to(lse.dtype)
        if self.bias.values is not None:
            out = out + self.bias.values[self.bias.row(torch.tensor(end))].to(lse.dtype)
        return out, lse + of_query


def _near(call: Call, bias: ByRow, strip: Strip, rows: slice, keys: slice) -> Part | None:
    """The definition."""
    if keys.start >= keys.stop:
        return None
    q = call.q[:, :, rows].to(call.exact)
    k, v = (per_query_head(x[:, :, keys], q).to(call.exact) for x in (call.k, call.v))
    scores = (q @ k.mT).mul_(call.scale).add_(bias.block(rows, keys))
    all_seen = _all(strip, rows, keys)
    if all_seen != keys:
        i = torch.arange(rows.start, rows.stop).unsqueeze(-1)
        apart = i - torch.arange(keys.start, keys.stop)
        unseen = (apart < strip.low) | (apart > strip.high)
        # Not −∞: a row that sees none of these keys has some elsewhere, which outweigh these.
        scores.masked_fill_(unseen, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)  # exp() by itself is slow where the result is 0
    lse = scores.amax(-1) - weights.amax(-1).log()
    out = weights @ v
    if bias.values is not None:
        out += _of_values(weights, bias, rows, keys)
    return out, lse


def _of_values(weights: Tensor, bias: ByRow, rows: slice, keys: slice) -> Tensor:
    """Σⱼ weights[i, j] values[row(pᵢ − pⱼ)]: skewed, so that equal offsets are one column."""
    assert bias.values is not None
    values = bias.values.to(weights.dtype)
    if rows.stop - rows.start == 1:
        apart = away(bias.q_pos, bias.k_pos, rows, keys)
        return weights @ values[bias.row(apart[0, 0, 0])]
    *outer, n, m = weights.shape
    columns = n + m - 1
    skewed = weights.new_zeros(*outer, n, columns)
    strides = (*skewed.stride()[:-2], columns - 1, 1)
    skewed.as_strided((*outer, n, m), strides, n - 1).copy_(weights)
    q_pos, k_pos = bias.q_pos.reshape(-1)[rows], bias.k_pos.reshape(-1)[keys]
    apart = torch.cat((q_pos.flip(0) - k_pos[0], q_pos[0] - k_pos[1:]))
    first = int((apart >= bias.reach).sum())
    last = max(first, columns - int((apart <= -bias.reach).sum()))
    near = skewed[..., first:last] @ values[bias.row(apart[first:last])]
    for some, end in ((skewed[..., :first], bias.reach), (skewed[..., last:], -bias.reach)):
        if some.shape[-1]:
            near.addcmul_(some.sum(-1, keepdim=True), values[bias.row(torch.tensor(end))])
    return near
