"""Biases by their own tiles, and windows, on the CPU.

No tokens² is ever made: torch's CPU kernel reads a bias that goes by i − j, over positions at equal
steps, out of a vector or a block of products with overlapping strides, and one that goes by sums of
gates out of a row that all queries share. To keys past the last count it adds nothing. Each bias in
`posenc.biases` brings its tiles (`ScoreBias.attended`).
"""

from contextlib import nullcontext

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu import kernel
from posenc.attention.cpu.engine import calm
from posenc.attention.path import Path
from posenc.biases import distance
from posenc.core.biases import FEW_QUERIES

# Numbers of which each operation is computed by one thread anyway.
FEW_NUMBERS = 2**15
UNREADABLE = "it takes torch's CPU kernel, which reads strides, outside of what is traced"


class Strided(Path):
    """Strided views that torch's CPU kernel reads."""

    def serves(self, call: Call) -> str:
        bias = call.bias
        if call.softcap is not None or call.dropout:
            what = "`dropout`" if call.softcap is None else "`softcap`"
            return f"torch's CPU kernel has no place for {what}"
        if call.sinks is not None and bias is not None and not bias.takes_sinks:
            return f"scores of {call.name} as a view have no place for `sinks`"
        if not call.readable:
            return UNREADABLE
        if reason := kernel.lacks():
            return reason
        if not (call.q.numel() and call.k.numel() and call.v.numel()):
            return "there is nothing to attend to"
        if call.seen is None:
            return "the mask is no strip along the diagonal"
        if bias is not None and (reason := bias.refuses(call, call.seen)):
            return reason
        if call.by_weight and not _carries_values(call):
            return f"{call.name} adds to the values, which takes the weights themselves"
        return ""

    def suits(self, call: Call) -> str:
        if not call.readable:
            return UNREADABLE
        queries, bias = call.q.shape[-2], call.bias
        if queries <= FEW_QUERIES:
            return "the bias of few queries is a few rows"
        if bias is not None and queries * call.k.shape[-2] < bias.few_scores:
            return "the bias of a short text is soon made"
        return ""

    def why(self, call: Call) -> str:
        if call.bias is not None:
            return call.bias.view.format(call.name)
        return "positions stand at equal steps and the mask is a strip along the diagonal."

    def run(self, call: Call) -> Tensor:
        assert call.seen is not None
        if not call.seen.rows:
            return _zeros(call)
        many = call.q.numel() > FEW_NUMBERS
        with calm(call.q, call.k) if many else nullcontext():
            if call.bias is None or call.bias.distance is not None:
                return distance.attended(call, call.seen)
            return call.bias.attended(call, call.seen)


def _carries_values(call: Call) -> bool:
    """Test whether the bias carries what is added to the values.

    It does for itself: no other part of a sum may add to the values.
    """
    adding = sum("by_weight" in part.acts_on for part in call.parts)
    return call.bias is not None and call.bias.adds_values and adding == 1


def _zeros(call: Call) -> Tensor:
    """The output where no query sees a key: zeros, with gradients of zero for every input."""
    out = call.q.new_zeros(*call.q.shape[:-1], call.v.shape[-1])
    if not call.trains:
        return out
    part = sum([x.sum() for x in (*call.inputs, *call.encoding.parameters())])
    return (out + part).masked_fill(torch.ones_like(out, dtype=torch.bool), 0).to(out.dtype)
