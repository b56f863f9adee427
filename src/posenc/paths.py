"""The ways to compute attention: the definition, and what must equal it, forward and backward.

    reference  softmax(q · kᵀ · scale + bias) · v + on_values(weights), in plain tensor operations
    sdpa       torch's own kernel; carries no bias
    view       a bias of distance, on the CPU, over positions at equal steps, as strided views that
               torch's kernel reads: `views.py`, `near.py`, `skew.py`
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

from posenc.call import Call, per_query_head
from posenc.distance import ByDistance, ByRow, ByVector, dense, pairs
from posenc.flexible import flexible
from posenc.masks import Mask
from posenc.near import near_and_far
from posenc.regular import Strip, lines, readable, strip
from posenc.shapes import Scores, Seen
from posenc.skew import skewed
from posenc.sum import Sum
from posenc.views import view

Implementation = Literal["auto", "reference", "sdpa", "view", "blocks", "flex"]
BLOCK = 128  # queries at a time, at most
HELD = 2**21  # scores at a time, unless 16 queries make more: 8 MB in float32
FEW = 8  # queries, as in decoding: to set up views of a bias takes longer than to make it
HUGE = 2.0**60  # of a key or value; two of that size still have a product


@dataclass(frozen=True)
class Explanation:
    """The path that attention takes, and why."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def _rows(call: Call, rows: slice, keys: slice = slice(None)) -> Tensor:
    """The definition, for some of the queries, who see no other than these keys."""
    scores = logits(call, rows, keys)
    if call.mask is None:
        weights = scores.softmax(-1)
    else:
        seen = call.mask(*pairs(call.shape, rows, call.q.device, keys))
        lowest = torch.finfo(scores.dtype).min  # −inf would make NaN of a row that sees no key
        weights = scores.masked_fill(~seen, lowest).softmax(-1).masked_fill(~seen, 0)
    out = weights @ per_query_head(call.v[..., keys, :], call.q).to(weights.dtype)
    extra = call.encoding.on_values(weights, call.at, call.k_at, rows) if call.on_values else None
    return (out if extra is None else out + extra).to(call.q.dtype)


def logits(call: Call, rows: slice, keys: slice = slice(None)) -> Scores:
    q, k = call.q[..., rows, :], per_query_head(call.k[..., keys, :], call.q)
    content = q.to(call.exact) @ k.to(call.exact).mT * call.scale
    return content if call.bias is None else content + _bias(call, rows, keys)


def _bias(call: Call, rows: slice, keys: slice) -> Tensor:
    bias = call.bias
    assert bias is not None
    assert not isinstance(bias, ByVector)
    if isinstance(bias, ByRow) and bias.q_pos.ndim == bias.k_pos.ndim == 1:
        return bias.block(rows, keys).to(call.exact)
    return bias(*pairs(call.shape, rows, call.q.device, keys)).to(call.exact)


def reference(call: Call) -> Tensor:
    return _rows(call, slice(None))


def blocks(call: Call) -> Tensor:
    batch, heads, tokens, keys = call.shape
    most = max(16, min(BLOCK, HELD // max(1, batch * heads * keys)))
    parts = _blocks(tokens, most) or [slice(0, 0)]
    seen = None if call.on_values else strip(call.mask, tokens, keys)
    columns = [slice(None) if seen is None else _of_block(seen, rows) for rows in parts]
    here = readable(call.q, call.k, call.v)
    each = _fused if here and not call.on_values else _rows
    if call.trains:
        # Of a block keep the output only; the rest is made again for the gradients.
        again = functools.partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
        each = functools.partial(again, each)
    if call.trains or not here:
        return torch.cat([each(call, *some) for some in zip(parts, columns, strict=True)], -2)
    # Written in place: kept parts would lie between pieces of memory that are to be used again.
    out = call.v.new_empty(*call.q.shape[:-1], call.v.shape[-1])
    for rows, some in zip(parts, columns, strict=True):
        out[..., rows, :] = each(call, rows, some)
    return out


def _of_block(seen: Strip, rows: slice) -> slice:
    keys = seen.seen(slice(rows.start, min(rows.stop, seen.queries)))
    return keys if keys.start < keys.stop else slice(0, 1)  # the mask hides it


def _fused(call: Call, rows: slice, keys: slice) -> Tensor:
    """As `_rows`, by torch's CPU kernel, which does not make scores and weights of a block."""
    if call.bias is None:
        return _rows(call, rows, keys)
    bias = _bias(call, rows, keys)
    if bias.requires_grad:  # the kernel has no gradient for it
        return _rows(call, rows, keys)
    q, k, v = call.q[..., rows, :], call.k[..., keys, :], call.v[..., keys, :]
    alone = None
    if call.mask is not None:
        seen = call.mask(*pairs(call.shape, rows, q.device, keys))
        alone = ~seen.any(-1, keepdim=True)  # kernels differ in what they make of an empty row
        bias = bias.masked_fill(~(seen | alone), float("-inf"))
    shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    out = _kernel(q, k, v, call, attn_mask=bias.expand(shape))
    return out if alone is None else out.masked_fill(alone, 0)


def _kernel(q: Tensor, k: Tensor, v: Tensor, call: Call, **options) -> Tensor:
    channels = v.shape[-1]
    if channels < q.shape[-1]:  # the fused kernels want q, k and v alike
        v = F.pad(v, (0, q.shape[-1] - channels))
    out = F.scaled_dot_product_attention(
        q, k, v, scale=call.scale, enable_gqa=call.grouped, **options
    )
    return out[..., :channels]


def sdpa(call: Call) -> Tensor:
    _refuse_unless(call.bias is None and not call.on_values, call, "sdpa", "carries no bias")
    q, k, v, mask = call.q, call.k, call.v, call.mask
    if mask is None or (isinstance(mask, Mask) and mask.is_causal):
        return _kernel(q, k, v, call, is_causal=mask is not None)
    seen = dense(mask, call.shape, q.device)
    alone = ~seen.any(-1, keepdim=True)  # kernels differ in what they make of an empty row
    out = _kernel(q, k, v, call, attn_mask=(seen | alone).expand(call.shape))
    return out.masked_fill(alone, 0)


def views(call: Call) -> Tensor:
    able = viewable(call)
    if isinstance(able, str):
        raise ValueError(f'`implementation="view"` cannot serve here: {able}; use "auto".')
    if isinstance(call.bias, ByRow):
        return near_and_far(call, *able)
    return skewed(call, *able) if isinstance(call.bias, ByVector) else view(call, *able)


def viewable(call: Call) -> tuple[Strip, tuple[int, int]] | str:
    """What `view` goes by: the strip of pairs that are seen, step and shift; or why it cannot."""
    name, bias = type(call.encoding).__name__, call.bias
    if not isinstance(bias, ByDistance | ByRow | ByVector):
        return f"the bias of {name} is no view, or there is none"
    if call.on_values and not (isinstance(bias, ByRow) and bias.values is not None and _one(call)):
        return f"{name} adds to the values, which takes the weights themselves"
    if not readable(call.q, call.k, call.v):
        return "it takes torch's CPU kernel, which reads strides, outside of what is traced"
    if call.trains and not isinstance(bias, ByDistance):
        return f"scores of {name} go by content and offset, and have no gradients as a view"
    if not min(call.shape) or not call.q.shape[-1] * call.v.shape[-1]:
        return "there is nothing to attend to"
    steps = lines(bias.q_pos, bias.k_pos)
    if steps is None:
        return "positions are not whole numbers at equal steps, alike in the batch"
    seen = strip(call.mask, *call.shape[2:])
    return "the mask is no strip along the diagonal" if seen is None else (seen, steps)


def _one(call: Call) -> bool:
    """Whether but one encoding adds to the values."""
    parts = call.encoding if isinstance(call.encoding, Sum) else (call.encoding,)
    return sum("on_values" in part.acts_on for part in parts) == 1


def flex(call: Call) -> Tensor:
    _refuse_unless(not call.on_values, call, "flex", "has no place for what is added to the values")
    cannot_train = call.q.device.type == "cpu" and call.trains
    _refuse_unless(not cannot_train, call, "flex", "cannot train on the CPU")
    _refuse_unless(call.q.dtype != torch.float64, call, "flex", "does not compute in float64")
    return flexible(call)


IMPLEMENTATIONS: dict[str, Callable[[Call], Tensor]] = {
    "reference": reference, "sdpa": sdpa, "view": views, "blocks": blocks, "flex": flex,
}  # fmt: skip


def run(call: Call, implementation: Implementation) -> Tensor:
    """(batch, head, query, value). Raises ValueError for what the implementation cannot do."""
    return IMPLEMENTATIONS[chosen(call, implementation).path](call)


def chosen(call: Call, implementation: Implementation = "auto") -> Explanation:
    """Never one that raises; flex, which compiles for seconds, only on request."""
    if implementation in IMPLEMENTATIONS:
        return Explanation(implementation, "it was asked for.")
    if implementation != "auto":
        known = ", ".join(map(repr, ("auto", *IMPLEMENTATIONS)))
        raise ValueError(f"`implementation` must be one of {known}, got {implementation!r}.")
    name = type(call.encoding).__name__
    if call.bias is None and not call.on_values:
        return Explanation("sdpa", f"{name} adds nothing to scores or values, as torch wants it.")
    able = viewable(call)
    if not isinstance(able, str):  # so it is not traced: a graph must not depend on the length
        if call.q.shape[-2] <= FEW and not isinstance(call.bias, ByVector):
            return Explanation("reference", "so few queries are one small block, as in decoding.")
        return Explanation(
            "view",
            f"the bias of {name} goes by distance, positions stand at equal steps and the mask"
            " is a strip along the diagonal.",
        )
    if torch.compiler.is_compiling():
        return Explanation("reference", "loops over blocks are not for what is traced.")
    if call.q.shape[-2] <= BLOCK:
        return Explanation("reference", f"{able}, and {call.q.shape[-2]} queries are one block.")
    return Explanation("blocks", f"{able}; so a block of queries at a time.")


def _refuse_unless(able: bool, call: Call, name: str, reason: str) -> None:
    if not able:
        encoding = type(call.encoding).__name__
        raise ValueError(
            f'`implementation="{name}"` {reason}, so it cannot carry {encoding} here; use "auto".'
        )


def hidden(q: Tensor, k: Tensor, v: Tensor, mask: Mask | Seen | None) -> tuple[Tensor, Tensor]:
    """Zeros for keys and values that no query sees: 0 · NaN would be NaN, also in the gradients.

    Where one look at them shows only ordinary numbers, their weights of 0 are enough.
    """
    if mask is None or (isinstance(mask, Mask) and mask.is_causal):
        return k, v
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
