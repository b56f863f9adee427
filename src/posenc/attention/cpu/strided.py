"""Biases of distance, offsets, gates or counts, and windows, as strided views.

No tokens² is ever made: torch's CPU kernel reads a bias that goes by i − j, over positions at equal
steps, out of a vector or a block of products with overlapping strides, and one that goes by sums of
gates out of a row that all queries share. To keys past the last count it adds nothing.
"""

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.cpu import (
    counts,
    decay,
    kernel,
    offset_tables,
    offset_vectors,
    relative,
    toeplitz,
)
from posenc.attention.path import Path
from posenc.biases.counts import CountBias
from posenc.biases.decay import DecayBias
from posenc.biases.offsets import TableBias, VectorBias
from posenc.biases.relative import RelativeBias

FEW_QUERIES = 8  # queries, as in decoding
UNREADABLE = "it takes torch's CPU kernel, which reads strides, outside of what is traced"


class Strided(Path):
    """Strided views that torch's CPU kernel reads."""

    def serves(self, call: Call) -> str:
        bias = call.bias
        goes_by_content = isinstance(bias, TableBias | VectorBias)
        own = goes_by_content or isinstance(bias, DecayBias | CountBias | RelativeBias)
        if bias is not None and bias.distance is None and not own:
            return f"the bias of {call.name} is no view"
        if call.by_weight and not _carries_values(call):
            return f"{call.name} adds to the values, which takes the weights themselves"
        if call.softcap is not None or call.dropout:
            what = "`dropout`" if call.softcap is None else "`softcap`"
            return f"torch's CPU kernel has no place for {what}"
        if call.sinks is not None and (goes_by_content or isinstance(bias, CountBias)):
            return f"scores of {call.name} as a view have no place for `sinks`"
        if not call.readable:
            return UNREADABLE
        if reason := kernel.lacks():
            return reason
        if not (call.q.numel() and call.k.numel() and call.v.numel()):
            return "there is nothing to attend to"
        if call.seen is None:
            return "the mask is no strip along the diagonal"
        if isinstance(bias, DecayBias):
            return decay.cannot_serve(bias, call.seen)
        if isinstance(bias, CountBias):
            return counts.cannot_serve(call, bias, call.seen)
        if bias is not None and bias.steps is None:
            return "positions are not whole numbers at equal steps, alike in the batch"
        return ""

    def suits(self, call: Call) -> str:
        if not call.readable:
            return UNREADABLE
        if call.q.shape[-2] <= FEW_QUERIES:
            return "the bias of few queries is a few rows"
        if isinstance(call.bias, DecayBias) and call.shape[2] * call.shape[3] < decay.FEW_SCORES:
            return "the bias of a short text is soon made"
        return ""

    def why(self, call: Call) -> str:
        if isinstance(call.bias, DecayBias):
            return f"the bias of {call.name} is one number for each key, up to each query's own."
        if isinstance(call.bias, CountBias):
            return f"{call.name} has one row for all keys beyond its last count."
        if isinstance(call.bias, RelativeBias):
            return f"few units of {call.name} bend among the pairs of a tile."
        goes = f"the bias of {call.name} goes by distance, " if call.bias is not None else ""
        return f"{goes}positions stand at equal steps and the mask is a strip along the diagonal."

    def run(self, call: Call) -> Tensor:
        seen = call.seen
        assert seen is not None
        if not seen.rows:
            return _zeros(call)
        if isinstance(call.bias, DecayBias):
            return decay.attended(call, seen)
        if isinstance(call.bias, CountBias):
            return counts.attended(call, seen)
        steps = (1, 0) if call.bias is None else call.bias.steps
        assert steps is not None
        if isinstance(call.bias, RelativeBias):
            return relative.attended(call, seen, steps)
        if isinstance(call.bias, TableBias):
            return offset_tables.near_and_far(call, seen, steps)
        if isinstance(call.bias, VectorBias):
            return offset_vectors.skewed(call, seen, steps)
        return toeplitz.view(call, seen, steps)


def _carries_values(call: Call) -> bool:
    """Test whether the bias carries what is added to the values.

    It does for itself: no other part of a sum may add to the values.
    """
    adding = sum("by_weight" in part.acts_on for part in call.parts)
    return isinstance(call.bias, TableBias) and call.bias.value_table is not None and adding == 1


def _zeros(call: Call) -> Tensor:
    """The output where no query sees a key: zeros, with gradients of zero for every input."""
    out = call.q.new_zeros(*call.q.shape[:-1], call.v.shape[-1])
    if not call.trains:
        return out
    part = sum([x.sum() for x in (*call.inputs, *call.encoding.parameters())])
    return (out + part).masked_fill(torch.ones_like(out, dtype=torch.bool), 0).to(out.dtype)
