"""The ways to compute attention: the definition, and what must equal it, forward and backward.

    reference  softmax(q · kᵀ · scale + bias) · v + on_values(weights), in plain tensor operations
    sdpa       torch's own kernel; carries no bias
    blocks     the definition for a few queries at a time, made again for the gradients: memory
               grows with tokens · block, never with tokens²
    flex       FlexAttention, compiled: the bias as `score_mod`, the mask as a block mask; on the
               CPU for inference only, and not for encodings that add to the values

A query that sees no key gets exactly 0, with finite gradients, and what stands in keys and values
that nobody sees, NaN included, changes nothing.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from posenc.distance import dense, pairs
from posenc.encoding import Encoding
from posenc.masks import Mask
from posenc.shapes import Bias, Heads, Keys, Scores, Seen, Values

Implementation = Literal["auto", "reference", "sdpa", "blocks", "flex"]
BLOCK = 128  # queries at a time


@dataclass(frozen=True)
class Call:
    """One call of attention after the hooks on queries, keys and scores."""

    encoding: Encoding
    q: Heads
    k: Keys
    v: Values
    at: Any
    k_at: Any
    scale: float
    bias: Bias | None = None
    mask: Mask | Seen | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(batch, head, query, key)"""
        batch, heads, tokens, _ = self.q.shape
        return batch, heads, tokens, self.k.shape[-2]

    @property
    def on_values(self) -> bool:
        return "on_values" in self.encoding.acts_on


def _rows(call: Call, rows: slice) -> Tensor:
    """The definition, for some of the queries."""
    scores = logits(call, rows)
    if call.mask is None:
        weights = scores.softmax(-1)
    else:
        seen = call.mask(*pairs(call.shape, rows, call.q.device))
        lowest = torch.finfo(scores.dtype).min  # −inf would make NaN of a row that sees no key
        weights = scores.masked_fill(~seen, lowest).softmax(-1).masked_fill(~seen, 0)
    out = weights @ per_query_head(call.v, call.q).to(weights.dtype)
    extra = call.encoding.on_values(weights, call.at, call.k_at, rows)
    return (out if extra is None else out + extra).to(call.q.dtype)


def logits(call: Call, rows: slice) -> Scores:
    """At least float32: 16-bit scores would not even tell 1,024 from 1,025."""
    q, k = call.q[..., rows, :], per_query_head(call.k, call.q)
    exact = torch.promote_types(q.dtype, torch.float32)
    content = q.to(exact) @ k.to(exact).mT * call.scale
    if call.bias is None:
        return content
    return content + call.bias(*pairs(call.shape, rows, q.device)).to(exact)


def reference(call: Call) -> Tensor:
    return _rows(call, slice(None))


def blocks(call: Call) -> Tensor:
    rows = _blocks(call.q.shape[-2]) or [slice(None)]
    if _needs_gradients(call):
        # Of a block keep the output only; the rest is made again for the gradients.
        again = functools.partial(checkpoint, _rows, use_reentrant=False, preserve_rng_state=False)
        return torch.cat([again(call, block) for block in rows], -2)
    return torch.cat([_rows(call, block) for block in rows], -2)


def sdpa(call: Call) -> Tensor:
    _refuse_unless(call.bias is None and not call.on_values, call, "sdpa", "carries no bias")
    q, k, v, mask = call.q, call.k, call.v, call.mask
    channels = v.shape[-1]
    if channels < q.shape[-1]:  # the fused kernels want q, k and v alike
        v = F.pad(v, (0, q.shape[-1] - channels))
    attention = functools.partial(
        F.scaled_dot_product_attention, scale=call.scale, enable_gqa=_grouped(call)
    )
    if mask is None or (isinstance(mask, Mask) and mask.is_causal):
        return attention(q, k, v, is_causal=mask is not None)[..., :channels]
    seen = dense(mask, call.shape, q.device)
    alone = ~seen.any(-1, keepdim=True)  # kernels differ in what they make of an empty row
    out = attention(q, k, v, attn_mask=(seen | alone).expand(call.shape))
    return out.masked_fill(alone, 0)[..., :channels]


def flex(call: Call) -> Tensor:
    _refuse_unless(not call.on_values, call, "flex", "has no place for what is added to the values")
    q, k, v, bias = call.q, call.k, call.v, call.bias
    trains = _needs_gradients(call)
    on_cpu = q.device.type == "cpu"
    _refuse_unless(not (on_cpu and trains), call, "flex", "cannot train on the CPU")
    _refuse_unless(q.dtype != torch.float64, call, "flex", "does not compute in float64")
    from torch.nn.attention.flex_attention import create_block_mask

    channels = v.shape[-1]
    if on_cpu:  # torch 2.13 reads past the last key where there are 8 or 16 channels
        q, k, v = (F.pad(x, (0, max(0, 32 - x.shape[-1]))) for x in (q, k, v))
    score = None if bias is None else lambda s, b, h, i, j: s + bias(b, h, i, j).to(s.dtype)
    visible = None
    if call.mask is not None:
        mask = call.mask
        sees = lambda b, h, i, j: mask(b, h, i, j)  # noqa: E731  # its parameters are counted
        visible = create_block_mask(sees, *call.shape, device=q.device.type)
    out = _compiled_flex(on_cpu)(
        q, k, v, score_mod=score, block_mask=visible, scale=call.scale,
        enable_gqa=_grouped(call),
    )  # fmt: skip
    return out[..., :channels]


@functools.cache
def _compiled_flex(on_cpu: bool) -> Callable[..., Tensor]:
    from torch._dynamo import config
    from torch.nn.attention.flex_attention import flex_attention

    # On the CPU torch 2.13 writes wrong code for lengths that vary: compile for each anew. Past its
    # limit of compilations torch would build tokens² instead.
    compiled = torch.compile(flex_attention, dynamic=False if on_cpu else None)
    return config.patch(recompile_limit=1_000)(compiled)


IMPLEMENTATIONS: dict[str, Callable[[Call], Tensor]] = {
    "reference": reference, "sdpa": sdpa, "blocks": blocks, "flex": flex,
}  # fmt: skip


def run(call: Call, implementation: Implementation) -> Tensor:
    """(batch, head, token, value). Raises ValueError for what the implementation cannot do."""
    chosen = _best(call) if implementation == "auto" else implementation
    if chosen not in IMPLEMENTATIONS:
        known = ", ".join(map(repr, ("auto", *IMPLEMENTATIONS)))
        raise ValueError(f"`implementation` must be one of {known}, got {chosen!r}.")
    return IMPLEMENTATIONS[chosen](call)


def _best(call: Call) -> str:
    """Never one that raises; flex, which compiles for seconds, only on request."""
    if call.bias is None and not call.on_values:
        return "sdpa"
    small = call.q.shape[-2] <= BLOCK
    return "reference" if small or torch.compiler.is_compiling() else "blocks"


def _refuse_unless(able: bool, call: Call, name: str, reason: str) -> None:
    if not able:
        encoding = type(call.encoding).__name__
        raise ValueError(
            f'`implementation="{name}"` {reason}, so it cannot carry {encoding} here; use "auto".'
        )


def _needs_gradients(call: Call) -> bool:
    learned = (call.q, call.k, call.v, *call.encoding.parameters())
    return torch.is_grad_enabled() and any(x.requires_grad for x in learned)


def _grouped(call: Call) -> bool:
    """Not the comparison itself: traced, that is a symbol, which the kernels do not take."""
    return True if call.q.shape[1] != call.k.shape[1] else False


def per_query_head(x: Tensor, q: Tensor) -> Tensor:
    """Grouped heads of keys or values, one for each head of the queries."""
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def hidden(q: Tensor, k: Tensor, v: Tensor, mask: Mask | Seen | None) -> tuple[Tensor, Tensor]:
    """Zeros for keys and values that no query sees: 0 · NaN would be NaN, also in the gradients."""
    if mask is None or (isinstance(mask, Mask) and mask.is_causal):
        return k, v
    batch, heads, tokens, _ = q.shape
    shape = (batch, heads, tokens, k.shape[-2])
    rows = [slice(None)]
    if tokens > BLOCK and not torch.compiler.is_compiling():
        rows = _blocks(tokens)
    seen = [mask(*pairs(shape, some, q.device)).any(-2, keepdim=True) for some in rows]
    by_anybody = torch.cat(seen, -2).any(-2, keepdim=True).any(1, keepdim=True).mT
    return k.masked_fill(~by_anybody, 0), v.masked_fill(~by_anybody, 0)


def _blocks(tokens: int) -> list[slice]:
    return [slice(start, start + BLOCK) for start in range(0, tokens, BLOCK)]
