"""Attention, written once, to show where each hook lands. This is the map of the library.

    out = softmax( on_queries(q) · on_keys(k)ᵀ · scale + on_scores(q, k) ) · v + on_values(weights)

`reference` is that definition; the other implementations must equal it, forward and backward:

    sdpa    torch's own kernel; carries no bias
    blocks  the definition for a few queries at a time, recomputed for the gradients:
            memory grows with tokens · block, never with tokens²
    flex    FlexAttention, compiled: the bias as `score_mod`, the mask as a block mask;
            on the CPU for inference only, and not for encodings that add to the values

A query that sees no key gives exactly 0, with finite gradients, and what stands in keys and values
that nobody sees, NaN included, changes nothing.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from posenc.distance import dense, pairs
from posenc.encoding import Encoding
from posenc.masks import Mask
from posenc.positions import sequence
from posenc.shapes import Bias, Heads, KeyPositions, Keys, Points, Positions, Scores, Seen, Values
from posenc.sum import Sum

Implementation = Literal["auto", "reference", "sdpa", "blocks", "flex"]
BLOCK = 128  # queries at a time


def attend(
    q: Heads,
    k: Keys,
    v: Values,
    encoding: Encoding,
    at: Any = None,
    k_at: Any = None,
    mask: Mask | Seen | None = None,
    scale: float | None = None,
    implementation: Implementation = "auto",
) -> Float[Tensor, "batch head token value"]:
    """Attention of `q` to `k` and `v`, positions and all; k and v may have fewer heads than q.

    `at` is what `encoding.prepare` made of the positions, once for all layers; None: 0, 1, 2, …
    `k_at` is given where the keys stand elsewhere: in a cache, or in another text.
    `mask` comes from `posenc.masks`. `scale` None: the encoding's own, usually 1/√channels.

    What acts on embeddings (`Sinusoidal`, `Learned`) does so before q, k and v are projected: call
    `encoding.on_embeddings(x, at)`, or use `SelfAttention`.

    Raises ValueError for shapes or positions that do not fit, and where an implementation is asked
    for what it cannot do; "auto" picks one that can.
    """
    _fits(encoding, q, k, v, mask)
    if at is None:
        if k.shape[-2] != q.shape[-2]:
            raise ValueError(
                f"{q.shape[-2]} queries and {k.shape[-2]} keys: where do they stand? Pass `at` and"
                " `k_at`, made by `encoding.prepare`."
            )
        at = encoding.prepare(sequence(q.shape[-2], 0, q.device))
    k_at = at if k_at is None else k_at
    _stand(encoding, at, q, "`at`")
    _stand(encoding, k_at, k, "`k_at`")
    scale = encoding.scale(q.shape[-1]) if scale is None else scale
    k, v = _hidden(q, k, v, mask)
    q, k = encoding.on_queries(q, at), encoding.on_keys(k, k_at)
    bias = encoding.on_scores(q, _per_query_head(k, q), at, k_at, scale)
    call = _Call(encoding, q, k, v, at, k_at, scale, bias, mask)
    chosen = _best(call) if implementation == "auto" else implementation
    if chosen not in IMPLEMENTATIONS:
        known = ", ".join(map(repr, ("auto", *IMPLEMENTATIONS)))
        raise ValueError(f"`implementation` must be one of {known}, got {chosen!r}.")
    return IMPLEMENTATIONS[chosen](call)


def scores(
    encoding: Encoding,
    q: Heads,
    k: Keys,
    q_pos: Positions | Points,
    k_pos: KeyPositions | Points,
    scale: float | None = None,
) -> Scores:
    """Logits from bare positions: what properties measure."""
    at, k_at = encoding.prepare(q_pos), encoding.prepare(k_pos)
    _stand(encoding, at, q, "`q_pos`")
    _stand(encoding, k_at, k, "`k_pos`")
    scale = encoding.scale(q.shape[-1]) if scale is None else scale
    q, k = encoding.on_queries(q, at), _per_query_head(encoding.on_keys(k, k_at), q)
    bias = encoding.on_scores(q, k, at, k_at, scale)
    return _logits(_Call(encoding, q, k, k, at, k_at, scale, bias), slice(None))


@dataclass(frozen=True)
class _Call:
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


def reference(call: _Call) -> Tensor:
    return _rows(call, slice(None))


def blocks(call: _Call) -> Tensor:
    rows = _blocks(call.q.shape[-2]) or [slice(None)]
    learned = (call.q, call.k, call.v, *call.encoding.parameters())
    if torch.is_grad_enabled() and any(x.requires_grad for x in learned):
        # Of a block keep the output only; the rest is made again for the gradients.
        again = functools.partial(checkpoint, _rows, use_reentrant=False, preserve_rng_state=False)
        return torch.cat([again(call, block) for block in rows], -2)
    return torch.cat([_rows(call, block) for block in rows], -2)


def _rows(call: _Call, rows: slice) -> Tensor:
    """The definition, for some of the queries."""
    logits = _logits(call, rows)
    if call.mask is None:
        weights = logits.softmax(-1)
    else:
        seen = call.mask(*pairs(call.shape, rows, call.q.device))
        lowest = torch.finfo(logits.dtype).min  # −inf would make NaN of a row that sees no key
        weights = logits.masked_fill(~seen, lowest).softmax(-1).masked_fill(~seen, 0)
    out = weights @ _per_query_head(call.v, call.q).to(weights.dtype)
    extra = call.encoding.on_values(weights, call.at, call.k_at, rows)
    return (out if extra is None else out + extra).to(call.q.dtype)


def _logits(call: _Call, rows: slice) -> Scores:
    """At least float32: 16-bit scores would not even tell 1,024 from 1,025."""
    q, k = call.q[..., rows, :], _per_query_head(call.k, call.q)
    exact = torch.promote_types(q.dtype, torch.float32)
    content = q.to(exact) @ k.to(exact).mT * call.scale
    if call.bias is None:
        return content
    return content + call.bias(*pairs(call.shape, rows, q.device)).to(exact)


def sdpa(call: _Call) -> Tensor:
    _refuse_unless(call.bias is None and not call.on_values, call, "sdpa", "carries no bias")
    q, k, v, mask = call.q, call.k, call.v, call.mask
    channels = v.shape[-1]
    if channels < q.shape[-1]:  # the fused kernels want q, k and v alike
        v = F.pad(v, (0, q.shape[-1] - channels))
    attention = functools.partial(
        F.scaled_dot_product_attention, scale=call.scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    if mask is None or (isinstance(mask, Mask) and mask.is_causal):
        return attention(q, k, v, is_causal=mask is not None)[..., :channels]
    seen = dense(mask, call.shape, q.device)
    alone = ~seen.any(-1, keepdim=True)  # kernels differ in what they make of an empty row
    out = attention(q, k, v, attn_mask=(seen | alone).expand(call.shape))
    return out.masked_fill(alone, 0)[..., :channels]


def flex(call: _Call) -> Tensor:
    _refuse_unless(not call.on_values, call, "flex", "has no place for what is added to the values")
    q, k, v, bias = call.q, call.k, call.v, call.bias
    trains = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    on_cpu = q.device.type == "cpu"
    _refuse_unless(not (on_cpu and trains), call, "flex", "cannot train on the CPU")
    _refuse_unless(q.dtype != torch.float64, call, "flex", "does not compute in float64")
    from torch.nn.attention.flex_attention import create_block_mask

    if on_cpu:  # torch 2.13 reads up to 32 keys past the last: let it find zeros there
        tokens = k.shape[-2]
        k, v = (F.pad(x, (0, 0, 0, 32))[..., :tokens, :] for x in (k, v))
    score = None if bias is None else lambda s, b, h, i, j: s + bias(b, h, i, j).to(s.dtype)
    visible = None
    if call.mask is not None:
        mask = call.mask
        sees = lambda b, h, i, j: mask(b, h, i, j)  # noqa: E731  # its parameters are counted
        visible = create_block_mask(sees, *call.shape, device=q.device.type)
    return _compiled_flex(on_cpu)(
        q, k, v, score_mod=score, block_mask=visible, scale=call.scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip


@functools.cache
def _compiled_flex(on_cpu: bool) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    # On the CPU torch 2.13 writes wrong code for lengths that vary: compile for each anew.
    return torch.compile(flex_attention, dynamic=False if on_cpu else None)


IMPLEMENTATIONS: dict[str, Callable[[_Call], Tensor]] = {
    "reference": reference, "sdpa": sdpa, "blocks": blocks, "flex": flex,
}  # fmt: skip


def _best(call: _Call) -> str:
    """Never one that raises; flex, which compiles for seconds, only on request."""
    if call.bias is None and not call.on_values:
        return "sdpa"
    small = call.q.shape[-2] <= BLOCK
    return "reference" if small or torch.compiler.is_compiling() else "blocks"


def _refuse_unless(able: bool, call: _Call, name: str, reason: str) -> None:
    if not able:
        encoding = type(call.encoding).__name__
        raise ValueError(
            f'`implementation="{name}"` {reason}, so it cannot carry {encoding} here; use "auto".'
        )


def _per_query_head(x: Tensor, q: Tensor) -> Tensor:
    """Grouped heads of keys or values, one for each head of the queries."""
    return x if x.shape[1] == q.shape[1] else x.repeat_interleave(q.shape[1] // x.shape[1], 1)


def _hidden(q: Tensor, k: Tensor, v: Tensor, mask: Mask | Seen | None) -> tuple[Tensor, Tensor]:
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


def _fits(encoding: Encoding, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Seen | None) -> None:
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(f"attention takes (batch, head, token, channel), got {_shapes(q, k, v)}.")
    if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0] or q.shape[-1] != k.shape[-1]:
        raise ValueError(
            "q and k must agree in batch and channels, k and v in batch, heads and tokens:"
            f" got {_shapes(q, k, v)}."
        )
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"the heads of q must be a multiple of those of k: {_shapes(q, k, v)}.")
    for part in encoding if isinstance(encoding, Sum) else (encoding,):
        if part.heads and part.heads != q.shape[1]:
            name = type(part).__name__
            raise ValueError(f"this {name} was made for {part.heads} heads: {_shapes(q, k, v)}.")
    if isinstance(mask, Mask):
        mask.check(q.shape[0], q.shape[-2], k.shape[-2])


def _shapes(q: Tensor, k: Tensor, v: Tensor) -> str:
    return f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"


def _stand(encoding: Encoding, at: Any, x: Heads, name: str) -> None:
    """Bare positions are looked up by token: too many would silently be the wrong ones."""
    if isinstance(encoding, Sum):
        for part, part_at in zip(encoding, at, strict=True):
            _stand(part, part_at, x, name)
    elif type(encoding).prepare is Encoding.prepare and isinstance(at, Tensor):
        given = at.shape[: at.ndim - (encoding.axes > 1)]
        if given[-1] != x.shape[-2]:
            what = f"{name} has {given[-1]} positions for {x.shape[-2]} tokens"
            raise ValueError(f"{what}: where the keys stand elsewhere, pass both `at` and `k_at`.")
        if given[:-1] not in ((), (1,), x.shape[:1]):
            raise ValueError(f"{name} is for a batch of {given[0]}, q, k and v for {x.shape[0]}.")
