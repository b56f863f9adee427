"""Attention with rows of a table for each offset, all offsets beyond a reach sharing one row.

    score(i, j) = qᵢ · kⱼ · scale + qᵢ · a[row(δ)] + kⱼ · b[row'(δ)],      δ = pᵢ − pⱼ
    out(i) = Σⱼ weight(i, j) (vⱼ + c[row(δ)])

Far away, |δ| ≥ reach, the second term is one number for each query, the third one for each key, and
c one vector: torch's kernel computes a rectangle of such pairs without a table. Near by, scores are
made a tile at a time. The parts are joined (`parts.py`).

Over positions at equal steps δ goes by i − j, so a tile of n queries and m keys meets n + m − 1
rows of a: qᵢ · a of these is one product, which is read, or its gradient written, along diagonals
by strides. The gradients come from L, tile by tile. Memory O(tokens · channels + tile); there is no
second derivative.
"""

from collections.abc import Iterator
from math import ceil, e, floor, log2
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.kernel import flash, flash_backward
from posenc.attention.cpu.parts import join_, softmax
from posenc.attention.cpu.sinks import fitted, refuse_second_derivative
from posenc.attention.spacing import Strip
from posenc.core.biases import per_query_head
from posenc.core.offset_biases import TableBias

FEWEST_ROWS, MOST_ROWS = 128, 256  # queries at a time
LOG2_E = log2(e)


class TableTile(NamedTuple):
    """Some queries and some of the keys that they see; far: they share one row of each table."""

    rows: slice
    keys: slice
    far: bool


# Autocast would make the scores 16 bits
@torch.autocast("cpu", enabled=False)
def near_and_far(call: Call, strip: Strip, steps: tuple[int, int]) -> Tensor:
    """Compute attention of a call whose bias is a `TableBias`, (batch, head, query, value)."""
    bias, (step, shift) = call.bias, steps
    assert isinstance(bias, TableBias)
    # Two strips of pairs whose offset is beyond the reach
    behind = strip.within(ceil((bias.reach - shift) / step), strip.high)
    ahead = strip.within(strip.low, floor((-bias.reach - shift) / step))
    # The fewer queries at a time, the fewer far keys are computed as those nearby are, and the more
    # rows of tables a tile takes for each of its queries.
    size = max(FEWEST_ROWS, min(MOST_ROWS, bias.reach // step))
    blocks = [slice(start, min(start + size, strip.rows.stop)) for start in strip.rows[::size]]
    parts = [part for rows in blocks for part in _parts(strip, rows, behind, ahead)]
    # The offsets of all differences i − j, the largest first
    differences = torch.arange(strip.queries - 1, -strip.keys, -1, device=call.q.device)
    terms = _Terms(parts, strip, call.scale, *_tensors(call, bias, step * differences + shift))
    out: Tensor = (NearAndFar.apply(*terms) if call.trains else _forward(terms))[0]  # type: ignore
    return out.to(call.q.dtype)


def _tensors(call: Call, bias: TableBias, offsets: Tensor) -> tuple[Any, ...]:
    """The tensors of `_Terms`, in float32 at least but where the kernel takes 16 bits."""
    row = bias.query_row(offsets)
    a, c = (bias.query_table * bias.scale).to(call.exact).index_select(-2, row), None
    b = y = None
    if bias.value_table is not None:
        c = bias.value_table.to(call.exact).index_select(-2, row)
    if bias.key_row is not None and bias.key_table is not None and bias.k is not None:
        b = bias.key_table.to(call.exact).index_select(-2, bias.key_row(offsets.flip(0)))
        y = bias.k.to(call.exact)
    q, k, v = call.q, call.k, call.v
    if call.trains or b is not None:
        q, k, v = (x.to(call.exact) for x in (q, k, v))
    return q, k, v, bias.q.to(call.exact), y, a, b, c


def _parts(strip: Strip, rows: slice, behind: Strip, ahead: Strip) -> Iterator[TableTile]:
    """The parts of the keys that some rows see.

    From left to right: the corner below the strip's edge, far behind, near by, far ahead, and the
    corner above its other edge. Most are empty.
    """
    keys = strip.seen(rows)
    # The keys that are far behind for every one of these rows, and those that are far ahead: two
    # rectangles. An empty one lies at the end of `keys`, so that what is near takes all.
    before, after = _seen_by_all(behind, rows, keys), _seen_by_all(ahead, rows, keys)
    if before.start == before.stop:
        before = slice(keys.start, keys.start)
    # Where reach is 0, far keys before and after meet.
    after = slice(max(after.start, before.stop), after.stop)
    if after.start >= after.stop:
        after = slice(keys.stop, keys.stop)
    yield from _tiles(rows, slice(keys.start, before.start))
    if before.start < before.stop:
        yield TableTile(rows, before, True)
    yield from _tiles(rows, slice(before.stop, after.start))
    if after.start < after.stop:
        yield TableTile(rows, after, True)
    yield from _tiles(rows, slice(after.stop, keys.stop))


def _tiles(rows: slice, keys: slice) -> Iterator[TableTile]:
    """Cut keys that are near by into tiles about as wide as high."""
    count = max(1, round(_count(keys) / _count(rows)))
    size = max(1, ceil(_count(keys) / count))
    for start in range(keys.start, keys.stop, size):
        yield TableTile(rows, slice(start, min(start + size, keys.stop)), False)


def _seen_by_all(strip: Strip, rows: slice, keys: slice) -> slice:
    """The keys that every one of these rows sees."""
    if strip.width < 1:
        return slice(keys.start, keys.start)
    start = max(keys.start, rows.stop - 1 - strip.high)
    return slice(start, max(start, min(keys.stop, rows.start - strip.low + 1)))


class _Terms(NamedTuple):
    """What scores are made of: x is q, and y is k, as they meet tables; y, b and c may be None.

    a and c, (head or none, query + key − 1, channel), have a row for each difference i − j, the
    largest first, b the smallest first.
    """

    parts: list[TableTile]
    strip: Strip
    scale: float
    q: Tensor
    k: Tensor
    v: Tensor
    x: Tensor
    y: Tensor | None
    a: Tensor
    b: Tensor | None
    c: Tensor | None

    def of_query(self, part: TableTile) -> slice:
        """The rows of a and c that a part meets: of its last query and first key, and on."""
        first = part.keys.start + self.strip.queries - part.rows.stop
        return slice(first, first + _count(part.rows) + _count(part.keys) - 1)

    def of_key(self, part: TableTile) -> slice:
        """The rows of b that a part meets: of its first query and last key, and on."""
        first = part.rows.start + self.strip.keys - part.keys.stop
        return slice(first, first + _count(part.rows) + _count(part.keys) - 1)

    def some(self, part: TableTile) -> tuple[Tensor, Tensor, Tensor]:
        """The queries, keys and values of a part, in the dtype of scores, head by head."""
        q = self.q[:, :, part.rows].to(self.a.dtype)
        k, v = (per_query_head(x[:, :, part.keys], q).to(q.dtype) for x in (self.k, self.v))
        return q, k, v

    def scores(self, part: TableTile, q: Tensor, k: Tensor) -> Tensor:
        """Scores of a part as they are defined, (batch, head, query, key)."""
        products = self.x[:, :, part.rows] @ self.a[..., self.of_query(part), :].mT
        scores = torch.add(_diagonals(products, k.shape[2]), q @ k.mT, alpha=self.scale)
        if self.y is not None and self.b is not None:
            products = self.y[:, :, part.keys] @ self.b[..., self.of_key(part), :].mT
            scores += _diagonals(products, q.shape[2]).mT
        if _seen_by_all(self.strip, part.rows, part.keys) != part.keys:
            i = torch.arange(part.rows.start, part.rows.stop, device=q.device).unsqueeze(-1)
            apart = i - torch.arange(part.keys.start, part.keys.stop, device=q.device)
            unseen = (apart < self.strip.low) | (apart > self.strip.high)
            # Not −∞: a row that sees none of these keys has some elsewhere, which outweigh these.
            scores.masked_fill_(unseen, torch.finfo(scores.dtype).min)
        return scores


def _count(some: slice) -> int:
    return some.stop - some.start


def _diagonals(x: Tensor, m: int) -> Tensor:
    """The view (…, n, m) of x, (…, n, n + m − 1), with x[…, i, n − 1 − i + j] at i, j.

    Row i of it begins in x at i · columns + n − 1 − i = n − 1 + i · (columns − 1).
    """
    *outer, n, columns = x.shape
    strides = (*x.stride()[:-2], columns - 1, 1)
    return x.as_strided((*outer, n, m), strides, x.storage_offset() + n - 1)


def _onto_columns(x: Tensor) -> Tensor:
    """The adjoint of `_diagonals`, (…, n, n + m − 1), of x, (…, n, m): zeros elsewhere."""
    *outer, n, m = x.shape
    columns = x.new_zeros(*outer, n, n + m - 1)
    _diagonals(columns, m).copy_(x)
    return columns


def _forward(terms: _Terms) -> tuple[Tensor, Tensor]:
    """The output (batch, head, query, value) and log-sum-exps (batch, head, query)."""
    lse = terms.a.new_zeros(terms.q.shape[:3])
    out = lse.new_zeros(*lse.shape, terms.v.shape[-1])
    start = None
    for part in terms.parts:
        some = (_far_part if part.far else _near_part)(terms, part)
        if part.rows.start == start:
            join_(out[:, :, part.rows], lse[:, :, part.rows], *some)
        else:
            out[:, :, part.rows], lse[:, :, part.rows] = some
        start = part.rows.start
    return out, lse


def _near_part(terms: _Terms, part: TableTile) -> tuple[Tensor, Tensor]:
    """Compute attention of some rows to some keys as it is defined."""
    q, k, v = terms.some(part)
    weights, lse = softmax(terms.scores(part, q, k))
    out = weights @ v
    if terms.c is not None:
        out += _onto_columns(weights) @ terms.c[..., terms.of_query(part), :]
    return out, lse


def _far_part(terms: _Terms, part: TableTile) -> tuple[Tensor, Tensor]:
    """Compute attention of some rows to keys that share one row of each table."""
    rows, keys, _ = part
    q, k, v = fitted(terms.q[:, :, rows], terms.k[:, :, keys], terms.v[:, :, keys])
    a, of_key, c = _of_far_keys(terms, part)
    # One number for each key serves all rows, so it is expanded and not copied
    if of_key is not None:
        of_key = of_key.mT.expand(*q.shape[:3], -1)
    out, lse = flash(q, k, v, of_key, terms.scale)
    out = out[..., : terms.v.shape[-1]].to(lse.dtype)
    # One number a query on all these scores leaves the weights alone, and moves their lse
    lse = lse + (terms.x[:, :, rows] @ a).squeeze(-1)
    return out if c is None else out + c, lse


def _of_far_keys(terms: _Terms, part: TableTile) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The row of a as a column, y · b of each key, (batch, head, key, 1), and the row of c."""
    some = terms.of_query(part).start
    of_key = None
    if terms.y is not None and terms.b is not None:
        b = terms.b[..., terms.of_key(part).start, :].unsqueeze(-1)
        of_key = terms.y[:, :, part.keys] @ b
    c = None if terms.c is None else terms.c[..., some, :].unsqueeze(-2)
    return terms.a[..., some, :].unsqueeze(-1), of_key, c


class NearAndFar(torch.autograd.Function):
    """The same with gradients: the output and the log-sum-exp of each row."""

    @staticmethod
    def forward(*terms: Any) -> tuple[Tensor, Tensor]:
        return _forward(_Terms(*terms))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.pairs, tensors = inputs[:3], inputs[3:]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    @torch.autocast("cpu", enabled=False)
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore
        refuse_second_derivative("attention by near and far keys")
        *tensors, out, lse = ctx.saved_tensors
        terms = _Terms(*ctx.pairs, *tensors)
        zeros = [None if x is None else torch.zeros_like(x) for x in tensors]
        grads = _Terms(*ctx.pairs, *zeros)
        for part in terms.parts:
            add = _far_gradients if part.far else _near_gradients
            add(terms, grads, part, *(x[:, :, part.rows] for x in (grad, out, lse)))
        return None, None, None, *grads[3:]


def _near_gradients(
    terms: _Terms, grads: _Terms, part: TableTile, grad: Tensor, out: Tensor, lse: Tensor
) -> None:
    """Add the gradients from some rows and keys as they are defined."""
    q, k, v = terms.some(part)
    some = terms.of_query(part)
    # P = exp(score − L), by powers of 2: `exp` takes many times as long where a weight is tiny
    p = (terms.scores(part, q, k) - lse.unsqueeze(-1)).mul_(LOG2_E).exp2_()
    # dS = P (dO (v + c)ᵀ − Σ dO · out)
    ds = grad @ v.mT
    _add(grads.v[:, :, part.keys], p.mT @ grad)
    if terms.c is not None and grads.c is not None:
        c = terms.c[..., some, :]
        ds += _diagonals(grad @ c.mT, k.shape[2])
        _add(grads.c[..., some, :], _onto_columns(p).mT @ grad)
    ds.sub_((grad * out).sum(-1, keepdim=True)).mul_(p)
    grads.q[:, :, part.rows].add_(ds @ k, alpha=terms.scale)
    _add(grads.k[:, :, part.keys], ds.mT @ q, terms.scale)
    by_column = _onto_columns(ds)
    grads.x[:, :, part.rows] += by_column @ terms.a[..., some, :]
    _add(grads.a[..., some, :], by_column.mT @ terms.x[:, :, part.rows])
    if terms.y is not None and terms.b is not None and grads.y is not None and grads.b is not None:
        some, by_column = terms.of_key(part), _onto_columns(ds.mT)
        grads.y[:, :, part.keys] += by_column @ terms.b[..., some, :]
        _add(grads.b[..., some, :], by_column.mT @ terms.y[:, :, part.keys])


def _far_gradients(
    terms: _Terms, grads: _Terms, part: TableTile, grad: Tensor, out: Tensor, lse: Tensor
) -> None:
    """Add the gradients from some rows and keys that share one row of each table, by the kernel.

    Two more channels carry the terms of the tables, whose gradients so are those of channels: q has
    x · a / scale and 1, k has 1 and y · b / scale. The kernel's own Σ dO · out is of all keys.
    """
    (rows, keys, _), scale = part, terms.scale
    a, of_key, c = _of_far_keys(terms, part)
    q, k, v, x = terms.q[:, :, rows], terms.k[:, :, keys], terms.v[:, :, keys], terms.x[:, :, rows]
    if of_key is None:
        of_key = torch.zeros_like(k[..., :1])
    else:
        # Heads that share a key have numbers of their own for it
        k, v = per_query_head(k, q), per_query_head(v, q)
    of_query, dim, values = x @ a, q.shape[-1], v.shape[-1]
    q = torch.cat((q, of_query / scale, torch.ones_like(of_query)), -1)
    k = torch.cat((k, torch.ones_like(of_key), of_key / scale), -1)
    # The kernel is faster where channels are a multiple of 8.
    wide = ceil(max(dim + 2, values) / 8) * 8
    v = v if c is None else v + c
    grad, q, k, v, out = (F.pad(x, (0, wide - x.shape[-1])) for x in (grad, q, k, v, out))
    of_q, of_k, of_v = flash_backward(grad, q, k, v, out, lse, None, scale)
    grads.q[:, :, rows] += of_q[..., :dim]
    _add(grads.k[:, :, keys], of_k[..., :dim])
    _add(grads.v[:, :, keys], of_v[..., :values])
    row, by_query = terms.of_query(part).start, of_q[..., dim : dim + 1] / scale
    grads.x[:, :, rows] += by_query @ a.mT
    _add(grads.a[..., row : row + 1, :], by_query.mT @ x)
    if grads.c is not None:
        _add(grads.c[..., row : row + 1, :], of_v[..., :values].sum(2, keepdim=True))
    if terms.y is not None and terms.b is not None and grads.y is not None and grads.b is not None:
        row, by_key = terms.of_key(part).start, of_k[..., dim + 1 : dim + 2] / scale
        grads.y[:, :, keys] += by_key @ terms.b[..., row : row + 1, :]
        _add(grads.b[..., row : row + 1, :], by_key.mT @ terms.y[:, :, keys])


def _add(total: Tensor, x: Tensor, scale: float = 1.0) -> None:
    """Add x, (batch, head, …), summed over the heads, or texts too, that share an entry."""
    if total.ndim == 4 and total.shape[1] != x.shape[1]:
        x = x.unflatten(1, (total.shape[1], -1)).sum(2)
    total.add_(x.sum_to_size(total.shape), alpha=scale)
