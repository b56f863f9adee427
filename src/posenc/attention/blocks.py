"""Attention a few queries at a time, made again for the gradients.

Memory grows with tokens · block, never with tokens².
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

BLOCK = 128  # queries at a time, at most
SMALLEST_BLOCK = 16  # queries
MOST_SCORES = 2**21  # scores at a time, unless `SMALLEST_BLOCK` queries make more: 8 MB


class Blocks(Path):
    """A block of queries at a time."""

    def suits(self, call: Call) -> str:
        if not call.readable and beyond_gradients():
            return "torch's kernels know first derivatives alone, and backwards"
        # Choosing by the length would make a compiled graph depend on it
        if torch.compiler.is_compiling():
            return "loops over blocks are not for what is traced"
        return ""

    def why(self, call: Call) -> str:
        queries = call.q.shape[-2]
        return (
            "a block of queries at a time."
            if queries > BLOCK
            else f"{queries} queries in one block."
        )

    def run(self, call: Call) -> Tensor:
        whole = call.bias is not None and call.bias.scores is not None
        tokens, most = call.q.shape[2], SMALLEST_BLOCK
        if tokens > most:
            batch, heads, _, keys = call.shape
            most = max(most, min(BLOCK, MOST_SCORES // max(1, batch * heads * keys)))
        # The kernel has no place for a cap or for what takes the weights, and drops weights only
        # where it makes all of them. Nor has it one for whole scores.
        can = call.plain or not (call.dropout or sdpa.cannot_weigh(call))
        can = can and not (whole or call.by_weight)
        compute = _fused if call.readable and can else attended
        # The keys that some queries see, as far as the mask is a strip
        strip = None if call.mask is None or call.by_weight else call.seen
        # A single block computes all, and there is nothing to make again for the gradients
        if tokens <= most or (tokens <= BLOCK and call.trains):
            return compute(call, ALL, ALL if strip is None else strip.seen(slice(0, tokens)))
        blocks = rows_of(tokens, most)
        columns = [ALL if strip is None else strip.seen(rows) for rows in blocks]
        if call.trains and call.bias is not None:
            call.bias.hold()
        # `torch.func` cannot transform a checkpoint
        if call.trains and (traced() or not transformed()):
            # Of a block keep the output only; the rest is made again for the gradients.
            again = functools.partial(
                checkpoint, use_reentrant=False, preserve_rng_state=call.dropout > 0
            )
            compute = functools.partial(again, compute)
        if call.trains or not call.readable:
            return torch.cat(
                [compute(call, *some) for some in zip(blocks, columns, strict=True)], -2
            )
        # Written in place: kept parts would lie between pieces of memory to be used again.
        out = call.v.new_empty(*call.q.shape[:-1], call.v.shape[-1])
        for rows, some in zip(blocks, columns, strict=True):
            out[..., rows, :] = compute(call, rows, some)
        return out


def _fused(call: Call, rows: slice, keys: slice) -> Tensor:
    """Compute `attended` by torch's CPU kernel, which keeps no scores and no weights."""
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
    return sdpa.unless_alone(call, q, k, v, seen, bias)
