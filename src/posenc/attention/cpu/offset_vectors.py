"""Attention with a bias of content by offset: a product for each block of offsets, read skewed.

    bias[i, j] = x[i] · vectors(pᵢ − pⱼ)

For rows r of a block, E[r, c] = x[r] · vectors(offset of column c) is one matrix product; with
c = j − r + rows − 1 the bias of the block is E read with the strides (columns − 1, 1), so nothing
is gathered and nothing copied. One block of E, small enough to stay in the cache, serves all.

For the gradients a block is made again: those of its scores, written with the same strides into
zeros, are those of E, and two more products take them to x and to the vectors. There is no second
derivative. For positions at equal steps.
"""

from collections.abc import Iterator
from math import e, log2
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.kernel import flash
from posenc.attention.cpu.sinks import fitted, refuse_second_derivative
from posenc.attention.spacing import Strip
from posenc.core.offset_biases import VectorBias
from posenc.core.tracing import full, in_full

ROWS, HEADS = 128, 2  # queries and heads of a block
LOG2_E = log2(e)


def skewed(call: Call, strip: Strip, steps: tuple[int, int]) -> Tensor:
    """Compute attention of a call whose bias is a `VectorBias` without u."""
    bias, (step, shift) = call.bias, steps
    assert isinstance(bias, VectorBias)
    q, k, v = fitted(call.q, call.k, call.v)
    # All differences i − j that a block may ask for, largest first, as columns run
    end = max(-strip.keys, strip.low - ROWS)
    apart = torch.arange(_largest(strip), end, -1, device=q.device)
    with in_full(q):
        vectors = bias.vectors(step * apart + shift)  # (head, difference, channel)
        if call.trains:
            q, k, v = full(q), full(k), full(v)
            out = Skewed.apply(q, k, v, bias.x, vectors, strip, call.scale)[0]  # type: ignore
        else:
            out = _forward(q, k, v, bias.x, vectors, strip, call.scale)[0]
    return out[..., : call.v.shape[-1]].to(call.q.dtype)


class SkewedBlock(NamedTuple):
    """Some queries and the keys that they see, whose differences are `columns` of all."""

    heads: slice
    shared: slice  # the same heads, counted in heads of the keys
    rows: slice
    keys: slice
    columns: slice
    ahead: int  # column from which on, up to `behind`, all is hidden
    behind: int

    @property
    def size(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.keys.stop - self.keys.start


def _largest(strip: Strip) -> int:
    """The largest difference i − j that a block may ask for."""
    return min(strip.queries - 1, strip.high + ROWS)


def _blocks(strip: Strip, heads: int, group: int) -> Iterator[SkewedBlock]:
    largest = _largest(strip)
    # The heads of a block must share their keys
    some = HEADS if group % HEADS == 0 or group == 1 else 1
    for start in strip.rows[::ROWS]:
        rows = slice(start, min(start + ROWS, strip.rows.stop))
        keys = strip.seen(rows)
        # n rows and m keys meet at n + m − 1 differences: from that of the last row and the first
        # key, column 0, down to that of the first row and the last key.
        most = rows.stop - 1 - keys.start
        columns = slice(largest - most, largest - (rows.start - keys.stop))
        # Column c has the difference most − c: hidden below `low`, and above `high`
        ahead, behind = max(0, most - strip.low + 1), max(0, most - strip.high)
        for h in range(0, heads, some):
            these = slice(h, min(h + some, heads))
            shared = slice(h // group, (these.stop - 1) // group + 1)
            yield SkewedBlock(these, shared, rows, keys, columns, ahead, behind)


def _held(q: Tensor, x: Tensor, strip: Strip) -> Tensor:
    """Memory for E of any block."""
    return x.new_empty(len(q) * HEADS * ROWS * (strip.keys + ROWS))


def _products(
    x: Tensor, vectors: Tensor, block: SkewedBlock, held: Tensor
) -> tuple[Tensor, Tensor]:
    """E of a block, (batch, head, row, column), and the view of it that is the bias."""
    (n, m), heads = block.size, block.heads.stop - block.heads.start
    shape = (len(x), heads, n, n + m - 1)
    products = held[: len(x) * heads * n * (n + m - 1)].view(shape)
    torch.matmul(
        x[:, block.heads, block.rows], vectors[block.heads, block.columns].mT, out=products
    )
    products[..., block.ahead :] = float("-inf")
    products[..., : block.behind] = float("-inf")
    # Row r meets key j in column j + n − 1 − r, at r · columns + j + n − 1 − r in memory:
    # n − 1 + r · (columns − 1) + j, which is a view (…, n, m) of these strides.
    strides = (*products.stride()[:2], n + m - 2, 1)
    return products, products.as_strided((*shape[:3], m), strides, n - 1)


def _forward(
    q: Tensor, k: Tensor, v: Tensor, x: Tensor, vectors: Tensor, strip: Strip, scale: float
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exps; rows that see no key are in no block, and stay 0."""
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    lse, held = x.new_zeros(q.shape[:3]), _held(q, x, strip)
    for block in _blocks(strip, q.shape[1], q.shape[1] // k.shape[1]):
        heads, shared, rows, keys = block[:4]
        out[:, heads, rows], lse[:, heads, rows] = flash(
            q[:, heads, rows], k[:, shared, keys], v[:, shared, keys],
            _products(x, vectors, block, held)[1], scale,
        )  # fmt: skip
    return out, lse


class Skewed(torch.autograd.Function):
    """Attention by skewed blocks, and the log-sum-exp of each row, of inputs of one dtype."""

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, x: Tensor, vectors: Tensor, strip: Strip, scale: float
    ) -> tuple[Tensor, Tensor]:
        return _forward(q, k, v, x, vectors, strip, scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.strip, ctx.scale = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore
        refuse_second_derivative("attention by skewed blocks")
        with in_full(grad):
            grads = _gradients(ctx.strip, ctx.scale, grad, *ctx.saved_tensors)
        return *grads, None, None


def _gradients(
    strip: Strip, scale: float, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, x: Tensor,
    vectors: Tensor, out: Tensor, lse: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients of q, k, v, x and the vectors, block by block."""
    inner = (grad * out).sum(-1, keepdim=True)  # Σ dO · O = Σ P dP, of each row
    # Powers of 2 of scores in bits: `exp` takes many times as long where a weight is hidden
    bits, lse = x * LOG2_E, (lse * LOG2_E).unsqueeze(-1)
    dq, dk, dv, dx, dvectors = map(torch.zeros_like, (q, k, v, x, vectors))
    held = _held(q, x, strip)
    for block in _blocks(strip, q.shape[1], q.shape[1] // k.shape[1]):
        heads, shared, rows, keys = block[:4]
        some_q, some_grad = q[:, heads, rows] * scale, grad[:, heads, rows]
        some_k, some_v = k[:, shared, keys], v[:, shared, keys]
        products, view = _products(bits, vectors, block, held)
        # P = 2^(score − L) in bits; then dS = P (dP − Σ P dP), written where the bias stood
        weights = (some_q * LOG2_E) @ some_k.mT
        weights.add_(view).sub_(lse[:, heads, rows]).exp2_()
        of_weights = (some_grad @ some_v.mT).sub_(inner[:, heads, rows])
        products.zero_()
        torch.mul(weights, of_weights, out=view)
        dq[:, heads, rows] = view @ some_k * scale
        dk[:, shared, keys] += _of_shared(view.mT @ some_q, some_k)
        dv[:, shared, keys] += _of_shared(weights.mT @ some_grad, some_v)
        dx[:, heads, rows] = products @ vectors[heads, block.columns]
        dvectors[heads, block.columns] += (products.mT @ x[:, heads, rows]).sum(0)
    return dq, dk, dv, dx, dvectors


def _of_shared(grad: Tensor, x: Tensor) -> Tensor:
    """Sum the gradients of the heads that share the one head of x, if they do."""
    return grad if grad.shape[1] == x.shape[1] else grad.sum(1, keepdim=True)
