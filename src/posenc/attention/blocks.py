"""Attention in blocks of queries; training recomputes a block's weights instead of storing them.

Memory is proportional to tokens · block size instead of tokens².
"""

import functools

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from posenc.attention import sdpa
from posenc.attention.call import Call, rows_of
from posenc.attention.path import Path
from posenc.attention.reference import ALL, attended, bias_block, mask_block
from posenc.compat.tracing import beyond_gradients, traced, transformed

BLOCK = 128  # largest number of queries in a block
SMALLEST_BLOCK = 16  # smallest number of queries in a block
MOST_SCORES = 2**21  # scores in a block, 8 MB, unless the smallest block has more


class Blocks(Path):
    """The implementation "blocks": attention for one block of queries after another."""

    def skips(self, call: Call) -> str:
        if not call.readable and beyond_gradients():
            return "torch's kernels support only first derivatives in reverse mode"
        # The number of blocks would make a compiled graph depend on the length
        if torch.compiler.is_compiling():
            return "loops over blocks cannot be traced for all lengths"
        return ""

    def why(self, call: Call) -> str:
        if call.q.shape[-2] > BLOCK:
            return "the queries are computed in blocks."
        return f"{call.q.shape[-2]} queries in one block."

    def run(self, call: Call) -> Tensor:
        whole = call.bias is not None and call.bias.scores is not None
        tokens, most = call.q.shape[2], SMALLEST_BLOCK
        if tokens > most:
            batch, heads, _, keys = call.shape
            most = max(most, min(BLOCK, MOST_SCORES // max(1, batch * heads * keys)))
        # The fused kernel supports no cap, no complete scores, and no access to the weights, and
        # its memory with dropout is that of all weights
        can = call.plain or not (call.dropout or sdpa.unsupported_softmax(call))
        can = can and not (whole or call.by_weight)
        compute = _fused if call.readable and can else attended
        # Masked keys of a block are skipped if the mask is a diagonal band
        band = None if call.mask is None or call.by_weight else call.seen
        # A single block needs no recomputation for the gradients
        if tokens <= most or (tokens <= BLOCK and call.trains):
            return compute(call, ALL, ALL if band is None else band.seen(slice(0, tokens)))
        blocks = rows_of(tokens, most)
        columns = [ALL if band is None else band.seen(rows) for rows in blocks]
        if call.trains and call.bias is not None:
            call.bias.hold()
        # `torch.func` cannot transform a checkpoint
        if call.trains and (traced() or not transformed()):
            # Store only the output of a block, and recompute the rest for the gradients
            compute = functools.partial(
                checkpoint, compute, use_reentrant=False, preserve_rng_state=call.dropout > 0
            )
        if call.trains or not call.readable:
            return torch.cat(
                [compute(call, *some) for some in zip(blocks, columns, strict=True)], -2
            )
        # Blocks are written in place, because a list of them would fragment memory
        out = call.v.new_empty(*call.q.shape[:-1], call.v.shape[-1])
        for rows, some in zip(blocks, columns, strict=True):
            out[..., rows, :] = compute(call, rows, some)
        return out


def _fused(call: Call, rows: slice, keys: slice) -> Tensor:
    """Compute a block of attention by torch's CPU kernel, which stores no scores or weights."""
    seen = None if call.mask is None else mask_block(call, rows, keys)
    bias = None if call.bias is None else bias_block(call, rows, keys, seen)
    q, k, v = call.q, call.k, call.v
    if rows != ALL or keys != ALL:
        q, k, v = q[:, :, rows], k[:, :, keys], v[:, :, keys]
    # The fast kernel has no gradient for a bias
    if (bias is not None and bias.requires_grad) or not k.shape[-2]:
        return attended(call, rows, keys)
    if seen is None:
        return sdpa.kernel(call, q, k, v, bias)
    return sdpa.with_mask(call, q, k, v, seen, bias)
