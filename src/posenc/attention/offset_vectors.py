"""Attention with a bias of content by offset, made a block of offsets at a time and read skewed.

    bias[i, j] = x[i] · vectors(pᵢ − pⱼ)

For rows r of a block, E[r, c] = x[r] · vectors(offset of column c) is one matrix product; with
c = j − r + rows − 1 the bias of the block is E read with the strides (columns − 1, 1), so nothing
is gathered and nothing copied. One block of E, small enough to stay in the cache, serves all.

For positions at equal steps, without gradients.
"""

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.spacing import Strip
from posenc.attention.toeplitz import fitted, flash
from posenc.core.biases import ByVector

ROWS, HEADS = 256, 2  # of a block


def skewed(call: Call, strip: Strip, steps: tuple[int, int]) -> Tensor:
    """(batch, head, query, value), of a call whose bias is a `ByVector`."""
    bias, (step, shift) = call.bias, steps
    assert isinstance(bias, ByVector)
    q, k, v = fitted(call.q, call.k, call.v)
    batch, heads, queries, _ = q.shape
    group = heads // k.shape[1]
    top = min(queries - 1, strip.high + ROWS)
    apart = torch.arange(top, max(-strip.keys, strip.low - ROWS), -1)  # i − j, as columns run
    vectors = bias.vectors(step * apart + shift).mT.to(call.exact)
    x = bias.x.to(call.exact)
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    held = q.new_empty(batch * HEADS * ROWS * (strip.keys + ROWS), dtype=call.exact)
    some = HEADS if group % HEADS == 0 or group == 1 else 1
    for start in strip.rows[::ROWS]:
        rows = slice(start, min(start + ROWS, strip.rows.stop))
        keys = strip.seen(rows)
        n, m = rows.stop - rows.start, keys.stop - keys.start
        columns = n + m - 1
        most = rows.stop - 1 - keys.start  # i − j of the first column
        first = top - most
        ahead, behind = most - strip.low + 1, most - strip.high  # where the columns are hidden
        for h in range(0, heads, some):
            these = slice(h, min(h + some, heads))
            shared = slice(h // group, (these.stop - 1) // group + 1)
            shape = (batch, these.stop - h, n, columns)
            block = held[: batch * shape[1] * n * columns].view(shape)
            torch.matmul(x[:, these, rows], vectors[these, :, first : first + columns], out=block)
            block[..., max(0, ahead) :] = float("-inf")
            block[..., : max(0, behind)] = float("-inf")
            strides = (*block.stride()[:2], columns - 1, 1)
            view = block.as_strided((*shape[:3], m), strides, n - 1)
            out[:, these, rows] = flash(
                q[:, these, rows], k[:, shared, keys], v[:, shared, keys],
                attn_mask=view, scale=call.scale,
            )[0]  # fmt: skip
    return out[..., : call.v.shape[-1]]
