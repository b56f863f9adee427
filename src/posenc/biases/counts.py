"""The bias of CoPE, and attention with this bias on the CPU.

The bias is interpolated in a table e at cumulative sums n of gates.

    score(i, j) = qᵢ · kⱼ · scale + qᵢ · e(n),   n = min( Σ_{t ≥ j} σ(qᵢ · k_t · scale), last )

Scores of near keys are computed by the definition, with keys in reverse order, so that a count is a
cumulative sum. Near keys are those before all counts of a block of queries have reached `last`. For
keys farther back the second term is one number per query, and torch's kernel computes them without
a table. The two parts are merged (`merge_softmax.py`).

Memory is O(rows · (rows + near keys)), forward and backward, because near scores are recomputed for
the gradients. dS of a query sums to 0 over all keys, so the far keys contribute to the gradient of
e[last] the negative sum of dS over near keys. There is no second derivative. If all gates are about
0, all keys are near.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.engine import calm, heads_dealt
from posenc.attention.cpu.kernel import flash, flash_backward
from posenc.attention.cpu.merge_softmax import join_, softmax
from posenc.attention.cpu.sinks import refuse_second_derivative
from posenc.attention.spacing import DiagonalBand
from posenc.compat.threads import spread
from posenc.compat.tracing import no_autocast, upcast
from posenc.core.biases import ScoreBias, per_query_head
from posenc.core.shapes import Heads, Keys

ROWS, FEWEST_ROWS = 128, 16  # largest and smallest number of queries in a block
MOST_SCORES = 2**21  # near scores in a block, 8 MB in float32, unless the smallest block has more


def counted(gates: Tensor) -> Tensor:
    """Return CoPE's counts: for each key, the sum of its gate and the gates of all later keys.

    >>> counted(torch.tensor([0.5, 1.0, 0.0]))
    tensor([1.5000, 1.0000, 0.0000])
    """
    return gates.flip(-1).cumsum(-1).flip(-1)


@dataclass(eq=False)
class CountBias(ScoreBias):
    """The bias qᵢ · e(n) of CoPE, where the count n sums the gates from key j to query i.

    `scale` is the factor of q · k in the gates.
    """

    takes_sinks = False
    view = "{} has one vector for all keys beyond its last count."
    q: Heads
    k: Keys  # as many heads as q
    rows: Tensor  # e, (count, channel)
    scale: float

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        q, last = self.q[..., rows, :], len(self.rows) - 1
        # A sum of gates in bfloat16 would stop at 256
        with no_autocast(q):
            gates = (q @ self.k[..., keys, :].mT * self.scale).sigmoid()
            e = q @ self.rows.mT  # at each whole number, (batch, head, query, count)
        # A product with the mask would give 0 · NaN = NaN for a fully masked key
        if seen is not None:
            gates = gates.masked_fill(~seen, 0)
        n = counted(gates).clamp_max(last)
        # NaN cannot be an index; for visible keys it reaches the scores through n
        whole = n.detach().long().clamp(0, last)
        # The step from each row to the next, 0 after the last
        step = torch.cat((e.diff(), torch.zeros_like(e[..., :1])), -1)
        return e.gather(-1, whole) + (n - whole) * step.gather(-1, whole)

    def refuses(self, call: Call, band: DiagonalBand) -> str:
        """Return the reason why `attended` cannot compute this call, or ""."""
        if band.high < band.queries - 1:
            return "the mask hides far keys"
        return "" if call.scale == self.scale else "`scale` is not positive"

    def attended(self, call: Call, band: DiagonalBand) -> Tensor:
        q, k, v = call.q, call.k, call.v
        e = F.pad(self.rows, (0, q.shape[-1] - self.rows.shape[-1]))
        if not call.trains:
            return _by_heads(q, k, v, e, band, call.scale, _heads(q, k))[0]
        q, k, v = (per_query_head(upcast(x), q) for x in (q, k, v))
        return Counted.apply(q, k, v, e, band, call.scale)  # type: ignore


class NearAndFarKeys(NamedTuple):
    """The slices of a block of queries and of the keys near it; all earlier keys are far.

    The count of a far key has reached its maximum for each query of the block.
    """

    rows: slice
    near: slice

    @property
    def far(self) -> slice:
        return slice(0, self.near.start)


class Near(NamedTuple):
    """Scores, gates and counts of the keys near a block of queries.

    Shape: (batch, head, query, key), with the keys in reverse order.
    """

    scores: Tensor  # q · k · scale; −∞ for hidden pairs
    gates: Tensor
    counts: Tensor


def _heads(q: Tensor, k: Tensor) -> list[slice]:
    """Split the key heads into slices, one for each thread."""
    batch, heads, queries, _ = q.shape
    return heads_dealt(k.shape[1], batch * heads * queries * k.shape[2])


def _by_heads(
    q: Tensor, k: Tensor, v: Tensor, e: Tensor, band: DiagonalBand, scale: float, heads: list[slice]
) -> tuple[Tensor, Tensor, list[list[NearAndFarKeys]]]:
    """Compute attention in one thread per slice of key heads, and concatenate the outputs."""
    group = q.shape[1] // k.shape[1]

    def of_heads(some: slice) -> tuple[Tensor, Tensor, list[NearAndFarKeys]]:
        queries = q[:, some.start * group : some.stop * group]
        return _forward(queries, k[:, some], v[:, some], e, band, scale)

    outs, sums, blocks = zip(*spread(of_heads, heads), strict=True)
    if len(heads) == 1:
        return outs[0], sums[0], [*blocks]
    return torch.cat(outs, 1), torch.cat(sums, 1), [*blocks]


def _forward(
    q: Tensor, k: Tensor, v: Tensor, e: Tensor, band: DiagonalBand, scale: float
) -> tuple[Tensor, Tensor, list[NearAndFarKeys]]:
    """Compute attention with CoPE's bias; return output, log-sum-exps and blocks of queries."""
    out = q.new_zeros(q.shape, dtype=e.dtype)
    lse = q.new_zeros(q.shape[:3], dtype=e.dtype)
    blocks: list[NearAndFarKeys] = []
    start, columns = band.rows.start, ROWS + 3 * len(e)
    while start < band.rows.stop:
        block, near = _nearest(q, k, len(e) - 1, band, start, columns, scale)
        blocks.append(block)
        start, columns = block.rows.stop, len(range(band.keys)[block.near]) + ROWS // 4
        by_count = q[:, :, block.rows].to(e.dtype) @ e.mT
        scores = near.scores + _looked_up(by_count, near.counts)[0]
        weights, some_lse = softmax(scores)
        some = weights @ per_query_head(v[:, :, block.near], q).flip(2).to(e.dtype)
        if block.near.start:
            far, far_lse = flash(
                q[:, :, block.rows], k[:, :, block.far], v[:, :, block.far], None, scale
            )
            join_(some, some_lse, far, far_lse + by_count[..., -1])
        out[:, :, block.rows], lse[:, :, block.rows] = some, some_lse
    return out, lse, blocks


def _nearest(
    q: Tensor, k: Tensor, last: int, band: DiagonalBand, start: int, columns: int, scale: float
) -> tuple[NearAndFarKeys, Near]:
    """Return the block of queries from `start` on, with scores, gates and counts for its last keys.

    The number of near keys is doubled until the counts of all earlier keys have reached `last`.
    """
    batch, heads = q.shape[:2]
    while True:
        most = max(FEWEST_ROWS, min(ROWS, MOST_SCORES // (batch * heads * columns)))
        rows = slice(start, min(start + most, band.rows.stop))
        stop = band.seen(rows).stop
        block = NearAndFarKeys(rows, slice(max(0, stop - columns), stop))
        near = _near(q, k, block, band, scale)
        # Counts grow along the keys, so all keys after the first saturated one are far. One key
        # that all queries see stays near, and so does NaN
        counted = near.counts.amin((0, 1, 2)) >= last
        enough = max(_hidden(block, band) + 1, len(counted) - int(counted.sum()))
        if enough < len(counted) or not block.near.start:
            block = NearAndFarKeys(rows, slice(stop - enough, stop))
            return block, Near(*(x[..., :enough] for x in near))
        columns *= 2


def _hidden(block: NearAndFarKeys, band: DiagonalBand) -> int:
    """Return the number of keys after the first query of a block, which this query does not see."""
    return max(0, block.near.stop - 1 - block.rows.start + band.low)


def _near(q: Tensor, k: Tensor, block: NearAndFarKeys, band: DiagonalBand, scale: float) -> Near:
    rows, keys = block
    some_q, some_k = upcast(q[:, :, rows]) * scale, per_query_head(k[:, :, keys], q).flip(2)
    scores = some_q @ upcast(some_k).mT
    hidden = _hidden(block, band)
    if hidden:
        r = torch.arange(rows.stop - rows.start, device=q.device).unsqueeze(-1)
        c = torch.arange(hidden, device=q.device)
        scores[..., :hidden].masked_fill_(c < hidden - r, float("-inf"))
    gates = scores.sigmoid()
    return Near(scores, gates, gates.cumsum(-1))


def _looked_up(by_count: Tensor, counts: Tensor) -> tuple[Tensor, ...]:
    """Interpolate CoPE's bias at each count.

    Returns the bias, its slope, and the whole and the fractional part of each count.

    `by_count` is q · e, (batch, head, query, count). Bias and slope are gathered together, as the
    real and imaginary part of one complex number.
    """
    last = by_count.shape[-1] - 1
    n = counts.clamp_max(last)
    # NaN cannot be an index, so clamp before it is used as one
    whole, rest = n.long().clamp_(0, last), n.frac()
    table = torch.complex(by_count, F.pad(by_count.diff(), (0, 1)))
    at = torch.view_as_real(table.gather(-1, whole))
    return torch.addcmul(at[..., 0], rest, at[..., 1]), at[..., 1], whole, rest


class Counted(torch.autograd.Function):
    """Attention with CoPE's bias, with gradients for q, k, v and the table e.

    Tensors are float32 or wider.
    """

    @staticmethod
    def forward(  # type: ignore
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, e: Tensor, band: DiagonalBand, scale: float
    ) -> Tensor:
        ctx.heads, ctx.band, ctx.scale = _heads(q, k), band, scale
        out, lse, ctx.blocks = _by_heads(q, k, v, e, band, scale, ctx.heads)
        ctx.save_for_backward(q, k, v, e, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore
        refuse_second_derivative("attention by counts")
        q, k, v, e, out, lse = ctx.saved_tensors

        def of_heads(n: int) -> tuple[Tensor, ...]:
            some = [x[:, ctx.heads[n]] for x in (grad, q, k, v, out, lse)]
            return _gradients(*some, e=e, blocks=ctx.blocks[n], band=ctx.band, scale=ctx.scale)

        with calm(q[..., 0].numel() * k.shape[2]):
            dq, dk, dv, de = zip(*spread(of_heads, range(len(ctx.heads))), strict=True)
            dq, dk, dv = (x[0] if len(x) == 1 else torch.cat(x, 1) for x in (dq, dk, dv))
            return dq, dk, dv, torch.stack(de).sum(0), None, None


def _gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, e: Tensor,
    blocks: list[NearAndFarKeys], band: DiagonalBand, scale: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the gradients of q, k, v and CoPE's table e for some heads, block by block."""
    dq, dk, dv, de = (torch.zeros_like(x) for x in (q, k, v, e))
    for block in blocks:
        rows, keys = block
        some_q, some_grad, some_lse = q[:, :, rows], grad[:, :, rows], lse[:, :, rows]
        some_k, some_v = (x[:, :, keys].flip(2) for x in (k, v))
        near, by_count = _near(q, k, block, band, scale), some_q @ e.mT
        bias, slope, whole, rest = _looked_up(by_count, near.counts)
        # P = exp(scores − L), L of all keys
        weights = (near.scores + bias).sub_(some_lse.unsqueeze(-1)).exp_()
        dv[:, :, keys] += (weights.mT @ some_grad).flip(2)
        # dS = P (dO vᵀ − Σ dO out)
        inner = (some_grad * out[:, :, rows]).sum(-1, keepdim=True)
        ds = (some_grad @ some_v.mT).sub_(inner).mul_(weights)
        # A score interpolates e at an integer and at the next, with weights 1 − rest and rest
        upper = ds * rest
        of_whole, of_next = (
            torch.zeros_like(by_count).scatter_add_(-1, whole, x) for x in (ds - upper, upper)
        )
        of_count = of_whole + F.pad(of_next, (1, -1))
        # The gate of a key is part of the counts of this key and of all keys before it
        of_gates = (ds * slope).flip(-1).cumsum(-1).flip(-1)
        of_scores = of_gates.mul_(near.gates).mul_(1 - near.gates).add_(ds).mul_(scale)
        dq[:, :, rows] += of_scores @ some_k
        dk[:, :, keys] += (of_scores.mT @ some_q).flip(2)
        if keys.start:
            for_q, for_k, for_v = flash_backward(
                some_grad, some_q, k[:, :, block.far], v[:, :, block.far], out[:, :, rows],
                some_lse - by_count[..., -1], None, scale,
            )  # fmt: skip
            dq[:, :, rows] += for_q
            dk[:, :, block.far] += for_k
            dv[:, :, block.far] += for_v
            of_count[..., -1] -= ds.sum(-1)
        dq[:, :, rows] += of_count @ e
        de += of_count.flatten(0, 2).mT @ some_q.flatten(0, 2)
    return dq, dk, dv, de
