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

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil, floor
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.functional import scaled_dot_product_attention as sdpa

from posenc.attention.call import Call, per_query_head
from posenc.attention.one_query import fastest
from posenc.attention.spacing import Strip, lines
from posenc.attention.toeplitz import fitted, flash
from posenc.core.biases import FEW_QUERIES, OneQuery, ScoreBias, for_query_heads, offset, offsets
from posenc.core.cache import cached_with
from posenc.core.shapes import KeyPositions, PairBias, Positions
from posenc.core.tracing import full, readable

ROWS = 256  # queries at a time


@dataclass(eq=False)
class TableBias(ScoreBias):
    """Bias q[i] · query_table[query_row(δ)] + k[j] · key_table[key_row(δ)],      δ = pᵢ − pⱼ

    `query_table`, which is multiplied by `scale`, and `key_table` are (head, row, channel), or
    (row, channel) for all heads; `key_table` is None where there is no second term. Both functions
    take offsets to rows, and all offsets beyond `reach` on one side to one row. `value_table`,
    (row, channel), is what the encoding adds to the values of keys at the offsets of `query_row`.
    """

    q_pos: Positions
    k_pos: KeyPositions
    reach: int
    query_row: Callable[[Tensor], Tensor]
    q: Tensor
    query_table: Tensor
    key_row: Callable[[Tensor], Tensor] | None = None
    k: Tensor | None = None
    key_table: Tensor | None = None
    value_table: Tensor | None = None
    scale: float = 1.0
    encoding: Any = None  # tells apart what is cached
    by_query: Tensor | None = field(init=False, default=None)  # `query_scores`
    by_key: Tensor | None = field(init=False, default=None)  # `key_scores`

    def __post_init__(self) -> None:
        self.strided, self.strided_decodes = near_and_far, True
        self.k_pos = for_query_heads(self.k_pos, self.q.shape[1])
        self.adds_to_values = self.value_table is not None
        if torch.is_grad_enabled() or not readable(self.q):
            self.query_scores()  # now, not in a block that is made again for gradients
            self.key_scores()

    def one_query(self, call: Call) -> tuple[OneQuery, nn.Module] | None:
        steps = lines(self.q_pos, self.k_pos)
        if steps is None or self.encoding is None or not self.prepares(call):
            return None
        return _prepared_query(slice(0, call.k.shape[-2]), call, self, steps), self.encoding

    def prepares(self, call: Call) -> bool:
        """Test whether `_prepared_query` can serve; 16 bits are left to the kernel."""
        both = self.key_table is not None and self.value_table is not None
        return call.q.dtype is call.exact and not both

    def query_scores(self) -> Tensor:
        """The products q · query_table, (batch, head, query, row): computed once, if needed."""
        if self.by_query is None:
            self.by_query = self.q @ (self.query_table * self.scale).mT.to(self.q.dtype)
        return self.by_query

    def key_scores(self) -> Tensor | None:
        """The products k · key_table, (batch, head, key, row): computed once, if needed."""
        if self.by_key is None and self.k is not None and self.key_table is not None:
            self.by_key = self.k @ self.key_table.mT
        return self.by_key

    def terms(self) -> dict[str, ScoreBias]:
        """Name the terms as DeBERTa's paper does."""
        terms: dict[str, ScoreBias] = {"content-position": replace(self, key_table=None)}
        if self.key_table is not None:
            none = torch.zeros_like(self.query_table)
            terms["position-content"] = replace(self, query_table=none)
        return terms

    def pair(self) -> PairBias:
        apart = offset(self.q_pos, self.k_pos)
        query_scores, key_scores = self.query_scores(), self.key_scores()

        def of_pair(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            δ = apart(b, h, i, j)
            bias = query_scores[b, h, i, self.query_row(δ)]
            if key_scores is None or self.key_row is None:
                return bias
            return bias + key_scores[b, h, j, self.key_row(δ)]

        return of_pair

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        """Look the scores up; one list of rows serves all heads, far faster than four indices."""
        apart = offsets(self.q_pos, self.k_pos, rows, keys)
        bias = _looked_up(self.query_scores()[..., rows, :], self.query_row(apart))
        if self.key_row is None or self.k is None or self.key_table is None:
            return bias
        few = readable(apart) and apart.shape[:2] == (1, 1) and 0 < len(apart[0, 0]) <= FEW_QUERIES
        if not few or torch.is_grad_enabled():
            by_key = self.key_scores()
            assert by_key is not None
            return bias + _looked_up(by_key[..., keys, :], self.key_row(apart).mT).mT
        # Of few queries each key meets few rows: their products, instead of those of all rows.
        k, rows_met = self.k[..., keys, :], self.key_row(apart[0, 0])
        k = k.to(torch.promote_types(k.dtype, torch.float32))
        products = [
            torch.linalg.vecdot(k, _table_rows(self.key_table, r).to(k.dtype)) for r in rows_met
        ]
        return bias + torch.stack(products, -2)

    def beyond(self, end: int, rows: slice, keys: slice) -> tuple[Tensor, Tensor | None]:
        """The two terms of keys at offset `end` or beyond: (batch, head, query), (…, key)."""
        apart = torch.tensor(end, device=self.q_pos.device)
        of_query = self.query_scores()[..., rows, int(self.query_row(apart))]
        if self.key_row is None or self.k is None or self.key_table is None:
            return of_query, None
        row = self.key_table[..., int(self.key_row(apart)), :].unsqueeze(-1)
        return of_query, (self.k[..., keys, :] @ row).squeeze(-1)


def _looked_up(table: Tensor, row: Tensor) -> Tensor:
    """Gather table[..., n, row[..., n, m]], (batch, head, n, m).

    In float32 at least: its gradient sums all that share a row, and 16 bits would lose the last.
    """
    return full(table).gather(-1, row.expand(*table.shape[:2], *row.shape[2:]))


def _table_rows(table: Tensor, row: Tensor) -> Tensor:
    """Take table[..., row, :]; a view, where these rows lie one after another."""
    first = int(row[0]) if len(row) else 0
    if row.equal(torch.arange(first, first + len(row), device=row.device)):
        return table[..., first : first + len(row), :]
    return table.index_select(-2, row)


def near_and_far(call: Call, strip: Strip, steps: tuple[int, int]) -> Tensor:
    """Compute attention of a call whose bias is a `TableBias`, (batch, head, query, value)."""
    bias, (step, shift) = call.bias, steps
    assert isinstance(bias, TableBias)
    if len(strip.rows) == call.q.shape[-2] == 1 and bias.prepares(call):
        return _one_query(call, bias, strip, steps)
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


def _one_query(call: Call, bias: TableBias, strip: Strip, steps: tuple[int, int]) -> Tensor:
    """Compute attention of one query, (batch, head, 1, value), as in decoding."""
    keys = strip.seen(slice(0, 1))
    tables = (bias.query_table, bias.key_table, bias.value_table)
    what = "one query", keys.start, keys.stop, call.q.shape, call.v.shape, call.exact, call.scale
    made_of = bias.k_pos, bias.q_pos, bias.encoding, *tables
    to_keys = cached_with(
        bias.k_pos, what, made_of, lambda: _prepared_query(keys, call, bias, steps)
    )
    if keys == slice(0, call.k.shape[-2]):
        return to_keys(call.q, call.k, call.v)
    return to_keys(call.q, call.k[:, :, keys], call.v[:, :, keys])


def _prepared_query(keys: slice, call: Call, bias: TableBias, steps: tuple[int, int]) -> OneQuery:
    """Attention of one query to these keys, prepared for all layers that share the positions.

    The definition, less what all keys beyond `reach` have in common, with rows of the tables for
    the keys near by alone.
    """
    step, shift = steps
    # Of keys in order the near ones come last: offsets shift − step · j below the reach
    first = min(max(keys.start, (shift - bias.reach) // step + 1), keys.stop)
    far, channels = first - keys.start, call.v.shape[-1]
    apart = offsets(bias.q_pos, bias.k_pos, slice(0, 1), slice(first, keys.stop))[0, 0, 0]
    apart = pad(apart, (0, 1), value=bias.reach)

    def rows(table: Tensor, row: Callable[[Tensor], Tensor], times: float) -> tuple[Tensor, Tensor]:
        """Rows of the keys near by, less the row of the keys far behind; and that row itself."""
        # (…, near keys + 1, channel): the last is the row at `reach`, shared by all keys far behind
        of_keys = table.index_select(-2, row(apart)).to(call.exact) * times
        of_keys = pad(of_keys, (0, max(0, channels - of_keys.shape[-1])))  # as `fitted` does
        return of_keys[..., :-1, :] - of_keys[..., -1:, :], of_keys[..., -1:, :]

    # q · row_far · scale is one number on all scores, which leaves a softmax as it is: so rows of
    # scores need only their differences to it, and the row itself is thrown away. Rows of values
    # are weighed by weights that sum to 1, so there the far row is added once at the end.
    scores, _ = rows(bias.query_table, bias.query_row, bias.scale / call.scale)
    of_keys, end, values = None, None, (None, None)
    if bias.key_table is None or bias.key_row is None:
        if bias.value_table is not None:
            values = rows(bias.value_table, bias.query_row, 1.0)
        out = _rows_added(far, keys.stop - first, call.scale, scores, *values)
    else:
        of_keys, end = rows(bias.key_table, bias.key_row, 1.0)
        out = _row_added(call, far, scores, of_keys, end)
    if channels != call.q.shape[-1]:
        return lambda q, k, v: out(*fitted(q, k, v))[..., :channels]
    attend = lambda *qkv: out(*[x if x.stride(-1) == 1 else x.contiguous() for x in qkv])  # noqa: E731
    k, v = call.k[:, :, keys], call.v[:, :, keys]
    return fastest(attend, call.q, k, v, call.scale, None, scores, of_keys, end, *values)


def _rows_added(
    far: int, near: int, scale: float, scores: Tensor, rows: Tensor | None, end: Tensor | None
) -> OneQuery:
    """Attention that adds the rows to the keys after `far`, which are few, and to their values.

    score(j) = q · (kⱼ + row),  out = weights · (v + value_row) + far value_row
    """
    of_each_head = scores.ndim > 2  # a table for each head of the queries

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k_near, v_near = (k[:, :, far:], v[:, :, far:]) if far else (k, v)
        if of_each_head:
            k_near, v_near = per_query_head(k_near, q), per_query_head(v_near, q)
        if not near:
            out, _ = flash(q, k, v, scale=scale)
        else:
            v_near = v_near if rows is None else v_near + rows
            out, lse = flash(q, k_near + scores, v_near, scale=scale)
            if far:
                behind, lse_behind = flash(q, k[:, :, :far], v[:, :, :far], scale=scale)
                share = (lse_behind - lse).sigmoid_().unsqueeze(-1)  # as in `_joined`
                out = torch.lerp(out, behind, share)
        return out if end is None else out.add_(end)

    return attend


def _row_added(call: Call, far: int, scores: Tensor, by_key: Tensor, end: Tensor) -> OneQuery:
    """Attention that adds a row of both terms to the scores of the keys after `far`.

    score(j) = (q · scale + end) · kⱼ + q · row · scale + kⱼ · key_row, as key rows are less `end`
    """
    scale, grouped = call.scale, call.grouped
    scores, end = (scores * scale).mT.contiguous().unsqueeze(0), end / scale

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k_near = per_query_head(k[:, :, far:] if far else k, q)
        # Keys far behind have a bias of 0 here: their key term is in q + end, the rest cancels
        row = q.new_zeros(*q.shape[:-1], k.shape[2])
        # kⱼ · key_row of each near key, (batch, head, near key)
        near = torch.linalg.vecdot(k_near, by_key).unsqueeze(-2)
        # + q · row · scale: (batch, head, 1, channel) @ (1, head, channel, near key)
        torch.add(near, q @ scores, out=row[..., far:])
        return sdpa(q + end, k, v, row, scale=scale, enable_gqa=grouped)

    return attend


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
            attn_mask=of_key, scale=call.scale,
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
