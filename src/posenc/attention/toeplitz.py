"""Attention on the CPU for causal masks and windows, computed tile by tile.

Memory is never proportional to tokens². A bias that depends on i − j at equally spaced positions is
a strided view of one vector, or of a block of products, which torch's CPU kernel can read. A bias
of summed gates is one row that all queries share. Each bias in `posenc.biases` implements its own
form (`ScoreBias.attended`).
"""

from contextlib import nullcontext

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu import diagonals, kernel
from posenc.attention.cpu.engine import calm
from posenc.attention.cpu.sinks import fitted
from posenc.attention.path import Path
from posenc.compat.tracing import no_autocast
from posenc.core.biases import FEW_QUERIES

# Number of elements up to which torch computes an operation in one thread
FEW_NUMBERS = 2**15
UNREADABLE = "tiles need torch's CPU kernel, which other devices and traced graphs cannot call"


class Toeplitz(Path):
    """The implementation "toeplitz", for causal and window masks on the CPU."""

    def cannot(self, call: Call) -> str:
        bias = call.bias
        if call.softcap is not None or call.dropout:
            what = "`dropout`" if call.softcap is None else "`softcap`"
            return f"torch's CPU kernel does not support {what}"
        if call.sinks is not None and bias is not None and not bias.takes_sinks:
            return f"the tiles of {call.name} do not support `sinks`"
        if not call.readable:
            return UNREADABLE
        if reason := kernel.lacks():
            return reason
        if not (call.q.numel() and call.k.numel() and call.v.numel()):
            return "a tensor is empty"
        if call.seen is None:
            return "the mask is not a band along the diagonal"
        if bias is not None and (reason := bias.refuses(call, call.seen)):
            return reason
        if call.by_weight and not _carries_values(call):
            return f"{call.name} needs the attention weights, which tiles do not store"
        return ""

    def skips(self, call: Call) -> str:
        if not call.readable:
            return UNREADABLE
        queries, bias = call.q.shape[-2], call.bias
        if queries <= FEW_QUERIES:
            return "a dense bias is fast enough for few queries"
        if bias is not None and queries * call.k.shape[-2] < bias.few_scores:
            return "a dense bias is fast enough for a short text"
        return ""

    def why(self, call: Call) -> str:
        if call.bias is not None:
            return call.bias.view.format(call.name)
        return "positions have equal steps and the mask is a band along the diagonal."

    def run(self, call: Call) -> Tensor:
        band = call.seen
        assert band is not None
        if call.hides and not band.rows:
            return _zeros(call)
        many = call.q.numel() > FEW_NUMBERS
        scores = call.q[..., 0].numel() * call.k.shape[2]
        q, k, v = fitted(call.q, call.k, call.v)
        channels, dtype, call = call.v.shape[-1], call.q.dtype, call._replace(q=q, k=k, v=v)
        with calm(scores) if many else nullcontext():
            if call.bias is None or call.bias.distance is not None:
                out = diagonals.attended(call, band)
            else:
                # Autocast would convert scores to 16 bits
                with no_autocast(q):
                    out = call.bias.attended(call, band)
        return (out if out.shape[-1] == channels else out[..., :channels]).to(dtype)


def _carries_values(call: Call) -> bool:
    """Test whether one encoding adds to the values, and its bias computes what it adds."""
    adding = sum("by_weight" in part.acts_on for part in call.parts)
    return call.bias is not None and call.bias.adds_values and adding == 1


def _zeros(call: Call) -> Tensor:
    """Return the output for a mask that hides all keys: zeros, with zero gradients."""
    out = call.q.new_zeros(*call.q.shape[:-1], call.v.shape[-1])
    if not call.trains:
        return out
    part = sum([x.sum() for x in (*call.inputs, *call.encoding.parameters())])
    return (out + part).masked_fill(torch.ones_like(out, dtype=torch.bool), 0).to(out.dtype)
