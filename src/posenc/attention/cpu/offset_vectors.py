"""Attention with a bias of content by offset: a product for each block of offsets, read skewed.

    bias[i, j] = x[i] · vectors(pᵢ − pⱼ)

For rows r of a block, E[r, c] = x[r] · vectors(offset of column c) is one matrix product; with
c = j − r + rows − 1 the bias of the block is E read with the strides (columns − 1, 1), so nothing
is gathered and nothing copied. One block of E, small enough to stay in the cache, serves all.

For positions at equal steps, without gradients.
"""

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu.kernel import flash
from posenc.attention.cpu.sinks import fitted
from posenc.attention.spacing import Strip
from posenc.core.offset_biases import VectorBias

ROWS, HEADS = 256, 2  # of a block


def skewed(call: Call, strip: Strip, steps: tuple[int, int]) -> Tensor:
    """Compute attention of a call whose bias is a `VectorBias` without u."""
    bias, (step, shift) = call.bias, steps
    assert isinstance(bias, VectorBias)
    q, k, v = fitted(call.q, call.k, call.v)
    batch, heads, queries, _ = q.shape
    group = heads // k.shape[1]
    # All differences i − j that a block may ask for, largest first, as columns run; (head, channel,
    # difference), once for all blocks
    top = min(queries - 1, strip.high + ROWS)
    apart = torch.arange(top, max(-strip.keys, strip.low - ROWS), -1, device=q.device)
    vectors = bias.vectors(step * apart + shift).mT.to(call.exact)
    x = bias.x.to(call.exact)
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    held = q.new_empty(batch * HEADS * ROWS * (strip.keys + ROWS), dtype=call.exact)
    some = HEADS if group % HEADS == 0 or group == 1 else 1  # heads of a block share their keys
    for start in strip.rows[::ROWS]:
        rows = slice(start, min(start + ROWS, strip.rows.stop))
        keys = strip.seen(rows)
        # n rows and m keys meet at n + m − 1 differences: from that of the last row and the first
        # key, column 0, down to that of the first row and the last key.
        n, m = rows.stop - rows.start, keys.stop - keys.start
        columns = n + m - 1
        most = rows.stop - 1 - keys.start
        first = top - most  # where the block's columns begin among all
        # Column c has the difference most − c: hidden below `low`, from `ahead` on, and above
        # `high`, up to `behind`.
        ahead, behind = most - strip.low + 1, most - strip.high
        for h in range(0, heads, some):
            these = slice(h, min(h + some, heads))
            shared = slice(h // group, (these.stop - 1) // group + 1)
            shape = (batch, these.stop - h, n, columns)
            block = held[: batch * shape[1] * n * columns].view(shape)
            torch.matmul(x[:, these, rows], vectors[these, :, first : first + columns], out=block)
            block[..., max(0, ahead) :] = float("-inf")
            block[..., : max(0, behind)] = float("-inf")
            # Row r meets key j in column j + n − 1 − r, at r · columns + j + n − 1 − r in memory:
            # n − 1 + r · (columns − 1) + j, which is a view (…, n, m) of these strides.
            strides = (*block.stride()[:2], columns - 1, 1)
            view = block.as_strided((*shape[:3], m), strides, n - 1)
            out[:, these, rows] = flash(
                q[:, these, rows], k[:, shared, keys], v[:, shared, keys],
                view, call.scale,
            )[0]  # fmt: skip
    return out[..., : call.v.shape[-1]]
