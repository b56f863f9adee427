"""Attention with rows of a table for each offset, all offsets beyond a reach sharing one row.

    score(i, j) = qᵢ · kⱼ · scale + query_scores[i, row(δ)] + key_scores[j, row'(δ)]
    with δ = pᵢ − pⱼ

Near by, |δ| < reach, scores are made as they are defined. For all keys further off, the first term
is one number for each query and the second one number for each key: torch's kernel computes them
without a table, and what is added to their values is one vector. The parts are joined by their
log-sum-exps L:

    out = Σ exp(L_part − L) out_part,      L = ln Σ exp(L_part)

Memory O(rows · (rows + reach)); for positions at equal steps, without gradients.
"""

from math import ceil, floor

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.kernel import flash
from posenc.attention.cpu.sinks import fitted
from posenc.attention.spacing import Strip
from posenc.core.biases import offsets, per_query_head
from posenc.core.offset_biases import TableBias

ROWS = 256  # queries at a time


def near_and_far(call: Call, strip: Strip, steps: tuple[int, int]) -> Tensor:
    """Compute attention of a call whose bias is a `TableBias`, (batch, head, query, value)."""
    bias, (step, shift) = call.bias, steps
    assert isinstance(bias, TableBias)
    # Two strips of pairs whose offset is beyond the reach, where both terms have one row each
    behind = strip.within(ceil((bias.reach - shift) / step), strip.high)
    ahead = strip.within(strip.low, floor((-bias.reach - shift) / step))
    out = call.q.new_zeros(*call.q.shape[:-1], call.v.shape[-1])
    far = _Far(call, bias)
    for start in strip.rows[::ROWS]:
        rows = slice(start, min(start + ROWS, strip.rows.stop))
        keys = strip.seen(rows)
        # The keys that are far behind for every one of these rows, and those that are far ahead:
        # two rectangles. An empty one lies at the end of `keys`, so that `_near_part` takes all.
        before, after = _seen_by_all(behind, rows, keys), _seen_by_all(ahead, rows, keys)
        if before.start == before.stop:
            before = slice(keys.start, keys.start)
        after = slice(max(after.start, before.stop), after.stop)  # they meet where reach is 0
        if after.start >= after.stop:
            after = slice(keys.stop, keys.stop)
        # From left to right: the corner below the strip's edge, far behind, near by, far ahead, and
        # the corner above its other edge. Most are empty.
        parts = [
            _near_part(call, bias, strip, rows, slice(keys.start, before.start)),
            far.part(bias.reach, rows, before),
            _near_part(call, bias, strip, rows, slice(before.stop, after.start)),
            far.part(-bias.reach, rows, after),
            _near_part(call, bias, strip, rows, slice(after.stop, keys.stop)),
        ]
        out[:, :, rows] = _joined([part for part in parts if part is not None])
    return out


def _seen_by_all(strip: Strip, rows: slice, keys: slice) -> slice:
    """The keys that every one of these rows sees."""
    if strip.width < 1:
        return slice(keys.start, keys.start)
    start = max(keys.start, rows.stop - 1 - strip.high)
    return slice(start, max(start, min(keys.stop, rows.start - strip.low + 1)))


Part = tuple[Tensor, Tensor]  # out (batch, head, query, value), log-sum-exp (batch, head, query)


def _joined(parts: list[Part]) -> Tensor:
    """Join the outputs over the keys of each part to that over all keys.

    With Z = exp(lse) the sum of exponentials of a part, two parts join to (Z₁ out₁ + Z₂ out₂) /
    (Z₁ + Z₂): a mean whose second weight, Z₂ / (Z₁ + Z₂), is sigmoid(lse₂ − lse₁). Neither Z is
    ever formed, so nothing overflows.
    """
    (out, lse), *others = parts
    for part_out, part_lse in others:
        out = torch.lerp(out, part_out, (part_lse - lse).sigmoid().unsqueeze(-1))
        if part_out is not others[-1][0]:
            lse = torch.logaddexp(lse, part_lse)  # of both parts, for the next
    return out


class _Far:
    """Attention to keys at offsets of `end` and beyond, which share one row of each table."""

    def __init__(self, call: Call, bias: TableBias):
        self.call, self.bias = call, bias
        self.q, self.k, self.v = fitted(call.q, call.k, call.v)

    def part(self, end: int, rows: slice, keys: slice) -> Part | None:
        if keys.start == keys.stop:
            return None
        call = self.call
        of_query, of_key = self.bias.beyond(end, rows, keys)
        if of_key is not None:  # one number a key, the same for all rows: expanded, not copied
            shape = (*of_key.shape[:2], rows.stop - rows.start, of_key.shape[-1])
            of_key = of_key.to(call.exact).contiguous().unsqueeze(-2).expand(shape)
        out, lse = flash(
            self.q[:, :, rows], self.k[:, :, keys], self.v[:, :, keys],
            of_key, call.scale,
        )  # fmt: skip
        out = out[..., : call.v.shape[-1]].to(lse.dtype)
        if self.bias.value_table is not None:  # one row for all these keys, whose weights sum to 1
            row = self.bias.query_row(torch.tensor(end, device=out.device))
            out = out + self.bias.value_table[row].to(lse.dtype)
        # One number a query on all these scores leaves the weights alone, and moves their lse
        return out, lse + of_query


def _near_part(call: Call, bias: TableBias, strip: Strip, rows: slice, keys: slice) -> Part | None:
    """Compute attention of some rows to some keys as it is defined."""
    if keys.start >= keys.stop:
        return None
    q = call.q[:, :, rows].to(call.exact)
    k, v = (per_query_head(x[:, :, keys], q).to(call.exact) for x in (call.k, call.v))
    scores = (q @ k.mT).mul_(call.scale).add_(bias.block(rows, keys))
    if _seen_by_all(strip, rows, keys) != keys:
        i = torch.arange(rows.start, rows.stop, device=q.device).unsqueeze(-1)
        apart = i - torch.arange(keys.start, keys.stop, device=q.device)
        unseen = (apart < strip.low) | (apart > strip.high)
        # Not −∞: a row that sees none of these keys has some elsewhere, which outweigh these.
        scores.masked_fill_(unseen, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    # The largest weight is exp(largest score − lse). `logsumexp` takes exp() of every score, which
    # is slow where the result is 0.
    lse = scores.amax(-1) - weights.amax(-1).log()
    out = weights @ v
    if bias.value_table is not None:
        out += _of_values(weights, bias, bias.value_table.to(weights.dtype), rows, keys)
    return out, lse


def _of_values(weights: Tensor, bias: TableBias, table: Tensor, rows: slice, keys: slice) -> Tensor:
    """Compute Σⱼ weights[i, j] table[row(pᵢ − pⱼ)], (batch, head, query, channel)."""
    if rows.stop - rows.start == 1:
        apart = offsets(bias.q_pos, bias.k_pos, rows, keys)
        return weights @ table[bias.query_row(apart[0, 0, 0])]
    *outer, n, m = weights.shape
    # An offset is a diagonal of the weights. `skewed`, (…, n, n + m − 1), has row i shifted to the
    # right by n − 1 − i, so that each diagonal is one column and the rest is 0.
    columns = n + m - 1
    skewed = weights.new_zeros(*outer, n, columns)
    # Row i of the shifted place begins at i · columns + n − 1 − i = n − 1 + i · (columns − 1): the
    # place is a view (…, n, m) with strides (columns − 1, 1) from n − 1 on, and takes one copy.
    strides = (*skewed.stride()[:-2], columns - 1, 1)
    skewed.as_strided((*outer, n, m), strides, n - 1).copy_(weights)
    # Offsets of the columns, largest first: those of key 0 with rows n − 1 … 0, then those of row 0
    # with keys 1 … m − 1.
    q_pos, k_pos = bias.q_pos.reshape(-1)[rows], bias.k_pos.reshape(-1)[keys]
    apart = torch.cat((q_pos.flip(0) - k_pos[0], q_pos[0] - k_pos[1:]))
    # So the first columns are beyond the reach, where one row serves all, and so are the last.
    first = int((apart >= bias.reach).sum())
    last = max(first, columns - int((apart <= -bias.reach).sum()))
    # A product of matrices, (n, near columns) @ (near columns, channel), instead of a gather of
    # (n, m, channel)
    near = skewed[..., first:last] @ table[bias.query_row(apart[first:last])]
    for some, end in ((skewed[..., :first], bias.reach), (skewed[..., last:], -bias.reach)):
        if some.shape[-1]:
            row = table[bias.query_row(torch.tensor(end, device=table.device))]
            near.addcmul_(some.sum(-1, keepdim=True), row)
    return near
