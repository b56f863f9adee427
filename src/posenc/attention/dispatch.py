"""The ways to compute attention: the definition, and what must equal it, forward and backward.

    reference  softmax(q · kᵀ · scale + bias) · v + by_weight(weights), in plain tensor operations
    sdpa       torch's own kernel; carries no bias
    view       a bias of distance or a window, on the CPU, over positions at equal steps, as strided
               views that torch's kernel reads: `toeplitz`, `offset_tables`, `offset_vectors`
    blocks     a few queries at a time, made again for the gradients: memory grows with
               tokens · block, never with tokens²
    flex       FlexAttention, compiled: `flexible.py`; on the CPU for inference only, and not for
               encodings that add to the values

A query that sees no key gets exactly 0, with finite gradients, and what stands in keys and values
that nobody sees, NaN included, changes nothing.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from posenc.attention.call import Call, per_query_head
from posenc.attention.flex import flexible
from posenc.attention.sinks import (
    WithSinks,
    explain_second_derivative,
    flash,
    joined,
    widened,
)
from posenc.attention.spacing import Strip, lines
from posenc.attention.toeplitz import fitted, view
from posenc.core.biases import ALL, FEW_QUERIES, dense, pairs
from posenc.core.masks import Mask
from posenc.core.shapes import Scores, Seen
from posenc.core.sum import leaves
from posenc.core.tracing import beyond_gradients, readable, traced, transformed

Implementation = Literal["auto", "reference", "sdpa", "view", "blocks", "flex"]
BLOCK = 128  # queries at a time, at most
SMALLEST_BLOCK = 16  # queries
MOST_SCORES = 2**21  # scores at a time, unless `SMALLEST_BLOCK` queries make more: 8 MB
HUGE = 2.0**60  # of a key or value; two of that size still have a product


@dataclass(frozen=True)
class Explanation:
    """The path that attention takes, and why."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def _defined(call: Call, rows: slice, keys: slice = slice(None)) -> Tensor:
    """Compute attention as it is defined, for some queries, which see no keys but these."""
    seen = _mask_block(call, rows, keys)
    scores = logits(call, rows, keys, seen)
    if seen is None:
        weights = _softmax(scores, call.sinks)
    else:
        lowest = torch.finfo(scores.dtype).min  # −inf would make NaN of a row that sees no key
        weights = _softmax(scores.masked_fill(~seen, lowest), call.sinks).masked_fill(~seen, 0)
    if call.dropout:
        weights = F.dropout(weights, call.dropout)
    out = weights @ per_query_head(_sliced(call.v, keys), call.q).to(weights.dtype)
    extra = call.encoding.by_weight(weights, call.at, call.k_at, rows) if call.by_weight else None
    return (out if extra is None else out + extra).to(call.q.dtype)


def _sliced(x: Tensor, tokens: slice) -> Tensor:
    """Slice tokens, but not where all are taken: slicing costs as much as a small kernel."""
    return x if tokens == ALL else x[..., tokens, :]


def _mask_block(call: Call, rows: slice, keys: slice) -> Tensor | None:
    """The mask of these queries and keys, to broadcast; None: each query sees all of them."""
    if call.mask is None or _sees_all(call, rows, keys):
        return None
    return call.mask(*pairs(call.shape, rows, call.q.device, keys))


def _softmax(scores: Scores, sinks: Tensor | None) -> Tensor:
    """Take the softmax with sinks, each one more key whose weight is left out afterwards."""
    if sinks is None:
        return scores.softmax(-1)
    one_more = sinks.to(scores.dtype).view(-1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat((scores, one_more), -1).softmax(-1)[..., :-1]


def logits(
    call: Call, rows: slice, keys: slice = slice(None), seen: Tensor | None = None
) -> Scores:
    q, k = _sliced(call.q, rows), per_query_head(_sliced(call.k, keys), call.q)
    content = q.to(call.exact) @ k.to(call.exact).mT * call.scale
    if call.softcap is not None:
        content = call.softcap * (content / call.softcap).tanh()
    return content if call.bias is None else content + _bias(call, rows, keys, seen)


def _bias(call: Call, rows: slice, keys: slice, seen: Tensor | None) -> Tensor:
    assert call.bias is not None
    bias, exact = call.bias.block(rows, keys, seen), call.exact
    return bias if bias.dtype is exact else bias.to(exact)


def reference(call: Call) -> Tensor:
    return _defined(call, slice(None))


def blocks(call: Call) -> Tensor:
    batch, heads, tokens, keys = call.shape
    most = SMALLEST_BLOCK
    if tokens > most:
        most = max(most, min(BLOCK, MOST_SCORES // max(1, batch * heads * keys)))
    here = call.looks or call.readable
    # The kernel takes no cap, and drops weights only where it makes all of them.
    weights = call.by_weight or call.softcap is not None or call.dropout or _no_sinks(call)
    compute = _fused if here and not weights else _defined
    if tokens <= most and not call.trains:
        return compute(call, slice(None), _columns(call, slice(0, tokens)))
    parts = _blocks(tokens, most) or [slice(0, 0)]
    columns = [_columns(call, rows) for rows in parts]
    if call.trains and (traced() or not transformed()):  # `torch.func` knows no checkpoint
        # Of a block keep the output only; the rest is made again for the gradients.
        again = functools.partial(
            checkpoint, use_reentrant=False, preserve_rng_state=call.dropout > 0
        )
        compute = functools.partial(again, compute)
    if call.trains or not here:
        return torch.cat([compute(call, *some) for some in zip(parts, columns, strict=True)], -2)
    # Written in place: kept parts would lie between pieces of memory that are to be used again.
    out = call.v.new_empty(*call.q.shape[:-1], call.v.shape[-1])
    for rows, some in zip(parts, columns, strict=True):
        out[..., rows, :] = compute(call, rows, some)
    return out


def _columns(call: Call, rows: slice) -> slice:
    """The keys that these queries see, as far as the mask is a strip."""
    if call.seen is None or call.by_weight or call.seen.is_all:
        return slice(None)
    keys = call.seen.seen(slice(rows.start, min(rows.stop, call.seen.queries)))
    return keys if keys.start < keys.stop else slice(0, 1)  # the mask hides it


def _fused(call: Call, rows: slice, keys: slice) -> Tensor:
    """Compute `_defined` by torch's CPU kernel, which keeps no scores and no weights of a block."""
    seen = _mask_block(call, rows, keys)
    bias = None if call.bias is None else _bias(call, rows, keys, seen)
    if bias is not None and bias.requires_grad:  # the kernel has no gradient for it
        return _defined(call, rows, keys)
    q, k, v = _sliced(call.q, rows), _sliced(call.k, keys), _sliced(call.v, keys)
    if seen is None:
        return _kernel(q, k, v, call, attn_mask=bias)
    return _unless_alone(q, k, v, call, seen, bias)


def _sees_all(call: Call, rows: slice, keys: slice) -> bool:
    """Test whether each of these queries sees each of these keys."""
    if call.seen is None:
        return False
    if call.seen.is_all:
        return True
    queries, columns = range(call.q.shape[-2])[rows], range(call.k.shape[-2])[keys]
    if not queries or not columns:
        return True
    low, high = queries[0] - columns[-1], queries[-1] - columns[0]
    return call.seen.low <= low and high <= call.seen.high


def _unless_alone(
    q: Tensor, k: Tensor, v: Tensor, call: Call, seen: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Call the kernel, and give 0 to queries that see no key: kernels differ about these."""
    alone = ~seen.any(-1, keepdim=True)
    shown = seen | alone
    shown = shown if bias is None else bias.masked_fill(~shown, float("-inf"))
    return _kernel(q, k, v, call, attn_mask=shown).masked_fill(alone, 0)


def _kernel(
    q: Tensor, k: Tensor, v: Tensor, call: Call, attn_mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:  # fmt: skip
    channels = v.shape[-1]
    if channels < q.shape[-1]:  # the fused kernels want q, k and v alike
        v = F.pad(v, (0, q.shape[-1] - channels))
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*q.shape[:3], k.shape[2])
    if call.sinks is not None:
        return _with_sinks(q, k, v, call, attn_mask, is_causal)[..., :channels]
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask, call.dropout, is_causal, scale=call.scale, enable_gqa=call.grouped
    )
    if call.trains and not traced():
        explain_second_derivative(out)
    return out if out.shape[-1] == channels else out[..., :channels]


def _with_sinks(
    q: Tensor, k: Tensor, v: Tensor, call: Call, mask: Tensor | None, causal: bool
) -> Tensor:
    assert call.sinks is not None
    q, k, v = fitted(*widened(q, k, v, call.sinks))
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, float("-inf"))
    if call.trains:
        out = WithSinks.apply(q, k, v, call.sinks, mask, causal, call.scale)[0]  # type: ignore
        return out.to(call.q.dtype)
    out, lse = flash(q, k, v, 0.0, causal, attn_mask=mask, scale=call.scale)
    return joined(out, lse, call.sinks)[0]


def _no_sinks(call: Call) -> str:
    """Say why torch's kernel cannot serve with the sinks that there are; "" where it can."""
    if call.sinks is None:
        return ""
    if not call.readable:
        return "has `sinks` from the log-sum-exp of torch's CPU kernel, outside of what is traced"
    if not min(call.shape) or not call.q.shape[-1] * call.v.shape[-1]:
        return "has nothing to share with `sinks`"
    return "has no `dropout` beside `sinks`" if call.dropout else ""


def sdpa(call: Call) -> Tensor:
    _refuse_unless(call.bias is None and not call.by_weight, call, "sdpa", "carries no bias")
    _refuse_unless(call.softcap is None, call, "sdpa", "has no place for `softcap`")
    no_sinks = _no_sinks(call)
    _refuse_unless(not no_sinks, call, "sdpa", no_sinks)
    return _plainly(call)


def _plainly(call: Call) -> Tensor:
    """Call torch's kernel for attention without bias, with any mask."""
    q, k, v, mask, seen = call.q, call.k, call.v, call.mask, call.seen
    if mask is None or (seen is not None and seen.is_all):
        return _kernel(q, k, v, call)
    if (isinstance(mask, Mask) and mask.is_causal) or (seen is not None and seen.is_causal):
        return _kernel(q, k, v, call, is_causal=True)
    return _unless_alone(q, k, v, call, dense(mask, call.shape, q.device))


def views(call: Call) -> Tensor:
    able = viewable(call)
    if isinstance(able, str):
        raise ValueError(f'`implementation="view"` cannot serve here: {able}; use "auto".')
    return _viewed(call, *able)


def _viewed(call: Call, seen: Strip, steps: tuple[int, int]) -> Tensor:
    if not seen.rows:
        return zero_output(call)
    strided = None if call.bias is None else call.bias.strided
    return (strided or view)(call, seen, steps)


def viewable(call: Call) -> tuple[Strip, tuple[int, int]] | str:
    """The strip of pairs that are seen, step and shift, by which `view` goes; or why it cannot."""
    name, bias = type(call.encoding).__name__, call.bias
    if bias is not None and bias.distance is None is bias.strided:
        return f"the bias of {name} is no view"
    if not carries_values(call):
        return f"{name} adds to the values, which takes the weights themselves"
    if call.softcap is not None or call.dropout:
        what = "`dropout`" if call.softcap is None else "`softcap`"
        return f"torch's CPU kernel has no place for {what}"
    if call.sinks is not None and bias is not None and bias.distance is None:
        return f"scores of {name} as a view have no place for `sinks`"
    if not call.readable:
        return "it takes torch's CPU kernel, which reads strides, outside of what is traced"
    if call.trains and bias is not None and bias.distance is None:
        return f"scores of {name} go by content and offset, and have no gradients as a view"
    if not min(call.shape) or not call.q.shape[-1] * call.v.shape[-1]:
        return "there is nothing to attend to"
    steps = (1, 0) if bias is None else lines(bias.q_pos, bias.k_pos)
    if steps is None:
        return "positions are not whole numbers at equal steps, alike in the batch"
    return "the mask is no strip along the diagonal" if call.seen is None else (call.seen, steps)


def carries_values(call: Call) -> bool:
    """Test whether the bias carries what is added to the values, or nothing is.

    It does for itself: no other part of a sum may add to the values.
    """
    if not call.by_weight:
        return True
    adding = sum("by_weight" in leaf.acts_on for leaf in leaves(call.encoding))
    return call.bias is not None and call.bias.adds_to_values and adding == 1


def flex(call: Call) -> Tensor:
    _refuse_unless(not call.by_weight, call, "flex", "has no place for what is added to the values")
    _refuse_unless(not call.dropout, call, "flex", "has no place for `dropout`")
    _refuse_unless(call.sinks is None, call, "flex", "has no place for `sinks`")
    cannot_train = call.q.device.type == "cpu" and call.trains
    _refuse_unless(not cannot_train, call, "flex", "cannot train on the CPU")
    _refuse_unless(call.q.dtype != torch.float64, call, "flex", "does not compute in float64")
    _refuse_unless(
        call.bias is None or call.bias.pair() is not None,
        call,
        "flex",
        "asks a bias for one pair at a time",
    )
    return flexible(call)


IMPLEMENTATIONS: dict[str, Callable[[Call], Tensor]] = {
    "reference": reference, "sdpa": sdpa, "view": views, "blocks": blocks, "flex": flex,
}  # fmt: skip


def run(call: Call, implementation: Implementation) -> Tensor:
    """Attend: (batch, head, query, value). Raise ValueError where `implementation` cannot."""
    path, _, able = _choice(call, implementation)
    if path == "sdpa" != implementation:  # it was chosen: there is nothing to refuse
        return _plainly(call)
    return IMPLEMENTATIONS[path](call) if able is None else _viewed(call, *able)


def chosen(call: Call, implementation: Implementation = "auto") -> Explanation:
    path, why, _ = _choice(call, implementation)
    return Explanation(path, why)


def _choice(
    call: Call, implementation: Implementation
) -> tuple[str, str, tuple[Strip, tuple[int, int]] | None]:
    """The path and why; never one that raises, and flex, which compiles, only on request.

    With what `view` goes by, so that it need not ask again.
    """
    if implementation in IMPLEMENTATIONS:
        return implementation, "it was asked for.", None
    if implementation != "auto":
        known = ", ".join(map(repr, ("auto", *IMPLEMENTATIONS)))
        raise ValueError(f"`implementation` must be one of {known}, got {implementation!r}.")
    name, seen, queries = type(call.encoding).__name__, call.seen, call.q.shape[-2]
    if not call.looks and beyond_gradients():
        return "reference", "torch's kernels know first derivatives alone, and backwards.", None
    if call.bias is None and not call.by_weight and (seen is None or seen.is_all or seen.is_causal):
        if call.plain or (call.softcap is None and not _no_sinks(call)):
            return "sdpa", f"{name} adds nothing to scores or values, as torch wants it.", None
    if not call.looks and torch.compiler.is_compiling():  # a graph must not depend on the length
        return "reference", "loops over blocks are not for what is traced.", None
    few = queries <= FEW_QUERIES and not (call.bias is not None and call.bias.strided_decodes)
    able = "as in decoding" if few else viewable(call)
    if isinstance(able, str):
        if queries > BLOCK:
            return "blocks", f"{able}; so a block of queries at a time.", None
        path = "reference" if call.trains else "blocks"
        return path, f"{able}, and {queries} queries are one block.", None
    goes = f"the bias of {name} goes by distance, " if call.bias is not None else ""
    why = f"{goes}positions stand at equal steps and the mask is a strip along the diagonal."
    return "view", why, able


def zero_output(call: Call) -> Tensor:
    """The output where no query sees a key: zeros, with gradients of zero for every input."""
    out = call.q.new_zeros(*call.q.shape[:-1], call.v.shape[-1])
    if not call.trains:
        return out
    inputs = [call.q, call.k, call.v, *call.encoding.parameters()]
    inputs += [] if call.sinks is None else [call.sinks]
    part = sum([x.sum() for x in inputs])
    return (out + part).masked_fill(torch.ones_like(out, dtype=torch.bool), 0).to(out.dtype)


def _refuse_unless(able: bool, call: Call, name: str, reason: str) -> None:
    if not able:
        encoding = type(call.encoding).__name__
        raise ValueError(
            f'`implementation="{name}"` {reason}, so it cannot carry {encoding} here; use "auto".'
        )


def zero_unseen(q: Tensor, k: Tensor, v: Tensor, mask: Mask | Seen) -> tuple[Tensor, Tensor]:
    """Set keys and values that no query sees to 0: 0 · NaN would be NaN, also in the gradients.

    If all keys and values are finite and not huge, their weights of 0 are enough.
    """
    if readable(k, v) and _ordinary(k) and _ordinary(v):
        return k, v
    batch, heads, tokens, _ = q.shape
    shape = (batch, heads, tokens, k.shape[-2])
    rows = [slice(None)]
    if not torch.compiler.is_compiling() and tokens > BLOCK:  # in this order: it is one graph
        rows = _blocks(tokens)
    seen = [mask(*pairs(shape, some, q.device)).any(-2, keepdim=True) for some in rows]
    by_anybody = torch.cat(seen, -2).any(-2, keepdim=True).any(1, keepdim=True).mT
    return k.masked_fill(~by_anybody, 0), v.masked_fill(~by_anybody, 0)


def _ordinary(x: Tensor) -> bool:
    if not x.numel():
        return True
    low, high = x.detach().aminmax()
    return -HUGE < float(low) and float(high) < HUGE  # both False for NaN


def _blocks(tokens: int, most: int = BLOCK) -> list[slice]:
    return [slice(start, min(start + most, tokens)) for start in range(0, tokens, most)]
