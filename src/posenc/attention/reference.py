"""Reference implementation of attention in plain tensor operations; all others must equal it.

    softmax(q · kᵀ · scale + bias) · v + by_weight(weights)

The output of a query that sees no key is exactly 0, with finite gradients.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from posenc.attention.call import Call
from posenc.attention.path import Path
from posenc.compat.tracing import traced
from posenc.core import hooks
from posenc.core.biases import pairs, per_query_head
from posenc.core.shapes import Scores

ALL = slice(None)


class Reference(Path):
    """The implementation "reference", which computes all scores at once by plain operations."""

    def why(self, call: Call) -> str:
        return "plain tensor operations compute all scores at once."

    def run(self, call: Call) -> Tensor:
        return attended(call, ALL)


def attended(call: Call, rows: slice, keys: slice = ALL) -> Tensor:
    """Return the output of attention of some queries (the slice `rows`) to some keys (`keys`)."""
    seen = None if call.mask is None else mask_block(call, rows, keys)
    scores = logits(call, rows, keys, seen)
    if seen is None:
        weights = _softmax(scores, call.sinks)
    else:
        # −∞ would give NaN for a query that sees no key
        lowest = torch.finfo(scores.dtype).min
        weights = _softmax(scores.masked_fill(~seen, lowest), call.sinks).masked_fill(~seen, 0)
    if call.dropout:
        weights = F.dropout(weights, call.dropout)
    out = _by_group(weights, sliced(call.v, keys).to(weights.dtype))
    if call.by_weight:
        extra = hooks.by_weight(call.parts, weights, rows, out.shape[-1])
        out = out if extra is None else out + extra
    return out.to(call.q.dtype)


def logits(call: Call, rows: slice, keys: slice = ALL, seen: Tensor | None = None) -> Scores:
    if call.bias is not None and call.bias.scores is not None and call.softcap is None:
        return call.bias.scores(rows, keys)
    q, k = sliced(call.q, rows), sliced(call.k, keys)
    content = _by_group(q.to(call.exact), k.to(call.exact).mT) * call.scale
    if call.softcap is not None:
        content = call.softcap * (content / call.softcap).tanh()
    return content if call.bias is None else content + bias_block(call, rows, keys, seen)


def _by_group(x: Tensor, y: Tensor) -> Tensor:
    """Return x @ y without copying y, which has fewer heads than x (grouped queries)."""
    batch, heads, rows, channels = x.shape
    # A graph for any length must not depend on the memory layout of x
    if y.shape[1] == heads or traced():
        return x @ per_query_head(y, x)
    grouped = x.reshape(batch, y.shape[1], heads // y.shape[1] * rows, channels)
    return (grouped @ y).reshape(batch, heads, rows, y.shape[-1])


def bias_block(call: Call, rows: slice, keys: slice, seen: Tensor | None) -> Tensor:
    """Return the bias between the queries `rows` and the keys `keys`, in the scores' dtype.

    Its shape may broadcast.
    """
    assert call.bias is not None
    bias = call.bias.block(rows, keys, seen)
    if not torch.compiler.is_compiling():
        (batch, heads, queries, _), tokens = call.q.shape, call.k.shape[2]
        shape = (batch, heads, len(range(queries)[rows]), len(range(tokens)[keys]))
        if isinstance(bias, Tensor) and bias.dtype is call.exact and bias.shape == shape:
            return bias
        hooks.check_broadcast(call.encoding, "on_scores", bias, shape)
    return bias if bias.dtype is call.exact else bias.to(call.exact)


def mask_block(call: Call, rows: slice, keys: slice) -> Tensor | None:
    """Return the mask between the queries `rows` and the keys `keys`; None if it hides nothing."""
    assert call.mask is not None
    if _sees_all(call, rows, keys):
        return None
    return call.mask(*pairs(call.shape, rows, call.q.device, keys))


def sliced(x: Tensor, tokens: slice) -> Tensor:
    """Return x[..., tokens, :], or x itself if the slice `tokens` selects all tokens."""
    return x if tokens == ALL else x[..., tokens, :]


def _sees_all(call: Call, rows: slice, keys: slice) -> bool:
    """Test whether every query in `rows` can attend to all keys in `keys`."""
    if call.seen is None:
        return False
    queries, columns = range(call.q.shape[-2])[rows], range(call.k.shape[-2])[keys]
    if not queries or not columns:
        return True
    low, high = queries[0] - columns[-1], queries[-1] - columns[0]
    return call.seen.low <= low and high <= call.seen.high


def _softmax(scores: Scores, sinks: Tensor | None) -> Tensor:
    """Compute the softmax over keys and sinks, and return the weights of the keys only.

    A sink acts like one more key of its head.
    """
    if sinks is None:
        return scores.softmax(-1)
    one_more = sinks.to(scores.dtype).view(-1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat((scores, one_more), -1).softmax(-1)[..., :-1]
