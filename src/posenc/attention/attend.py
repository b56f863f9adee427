"""Attention, written once, to show where each hook lands. This is the map of the library.

    weights = softmax( on_queries(q) · on_keys(k)ᵀ · scale + on_scores(q, k) )
    out = on_output( weights · on_values(v) + by_weight(weights) )
    where q, k, v are projections of on_embeddings(x) and at = on_hidden(x, prepare(pos))

`inputs.py` checks what comes in, `hooks.py` applies the hooks, `dispatch.py` lists the ways to
compute the rest: the definition, and faster ones that equal it.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from posenc.attention import hooks
from posenc.attention.call import Call, Implementation, trains
from posenc.attention.dispatch import Explanation, chosen, run
from posenc.attention.inputs import (
    check_implementation,
    check_inputs,
    check_mask,
    check_softmax,
    placed,
)
from posenc.attention.reference import logits
from posenc.attention.unseen import visible
from posenc.core.arguments import number
from posenc.core.biases import pairs, per_query_head
from posenc.core.elsewhere import WEIGHED, answering
from posenc.core.encoding import Encoding
from posenc.core.fits import checked_at
from posenc.core.masks import Mask
from posenc.core.private import left_out
from posenc.core.shapes import (
    Heads,
    KeyPositions,
    Keys,
    Points,
    Positions,
    Scores,
    Seen,
    Sinks,
    Values,
)
from posenc.core.tracing import beyond_gradients, readable


@left_out
@answering(WEIGHED)
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
    *,
    dropout: float = 0.0,
    softcap: float | None = None,
    sinks: Sinks | None = None,
) -> Float[Tensor, "batch head token value"]:
    """Attention of `q` to `k` and `v`, positions and all; k and v may have fewer heads than q.

    `at` is what `encoding.prepare` made of the positions, once for all layers, or the positions
    themselves, (token,), (batch, token), or (batch, head, token) where heads stand elsewhere;
    None: 0, 1, 2, …
    `k_at` is given where the keys stand elsewhere: in a cache, or in another text.
    `mask` comes from `posenc.masks`. `scale` None: the encoding's own, usually 1/√channels.

    What acts on embeddings (`Sinusoidal`, `Learned`) does so before q, k and v are projected: call
    `encoding.on_embeddings(x, at)` and give that `at`, or use `SelfAttention`. Without, it is
    refused, for it would do nothing. What reads the input of the layer (`on_hidden`) is given it
    with `at = encoding.on_hidden(x, encoding.prepare(pos))`, or by `SelfAttention`.

    `softcap` c makes c · tanh(s / c) of s = q · k · scale, before biases and mask, as Gemma 2 does;
    transformers' eager attention and its FlexAttention cap first and add then, too.
    `sinks`, one logit for each head of q, take their share of the softmax and give nothing for it,
    as in gpt-oss. `dropout` is the probability with which a weight is 0, the others growing by
    1 / (1 − dropout); it is for training, which attention cannot know of: the caller says so.

    "auto" takes the fastest path that encoding, mask, positions, gradients and device allow;
    `explain` says which, and why. What is returned depends on the arguments alone: nothing is kept
    from one call to the next.

    Raises ValueError for shapes or positions that do not fit, and where an implementation is asked
    for what it cannot do; "auto" picks one that can.
    """
    call = _call(q, k, v, encoding, at, k_at, mask, scale, implementation, dropout, softcap, sinks)
    return hooks.finished(call, run(call))


@answering(WEIGHED)
def explain(
    q: Heads,
    k: Keys,
    v: Values,
    encoding: Encoding,
    at: Any = None,
    k_at: Any = None,
    mask: Mask | Seen | None = None,
    scale: float | None = None,
    *,
    dropout: float = 0.0,
    softcap: float | None = None,
    sinks: Sinks | None = None,
) -> Explanation:
    """The path that `attend`, with the same arguments, takes by itself, and why.

    >>> import torch
    >>> from posenc import RoPE
    >>> q = torch.randn(1, 2, 5, 8)
    >>> print(explain(q, q, q, RoPE(8)))
    sdpa: RoPE adds nothing to scores or values, as torch wants it.
    """
    call = _call(q, k, v, encoding, at, k_at, mask, scale, "auto", dropout, softcap, sinks)
    return chosen(call)


def _call(
    q: Tensor, k: Tensor, v: Tensor, encoding: Encoding, at: Any, k_at: Any,
    mask: Mask | Seen | None, scale: float | None, implementation: Implementation,
    dropout: float, softcap: float | None, sinks: Tensor | None,
) -> Call:  # fmt: skip
    """Check the inputs, and apply the hooks that come before the softmax."""
    check_inputs(encoding, q, k, v)
    check_mask(mask, q, k)
    at, k_at = placed(encoding, q, k, at, k_at)
    call = made(encoding, q, k, v, at, k_at, mask, scale, implementation, dropout, softcap, sinks)
    return hooks.scored(hooks.encoded(visible(call)))


def made(
    encoding: Encoding, q: Tensor, k: Tensor, v: Tensor, at: Any, k_at: Any,
    mask: Mask | Seen | None = None, scale: float | None = None,
    implementation: Implementation = "auto", dropout: float = 0.0, softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Call:  # fmt: skip
    """A call before its hooks are applied, its softmax checked."""
    check_implementation(implementation)
    if not (dropout == 0.0 and softcap is None is sinks):
        check_softmax(q, dropout, softcap, sinks)
    scale = encoding.scale(q.shape[-1]) if scale is None else float(number(scale, "scale"))
    inputs = (q, k, v) if sinks is None else (q, k, v, sinks)
    return Call(
        encoding, q, k, v, at, k_at, scale, None, mask, None, trains(encoding, *inputs),
        readable(*inputs) and not beyond_gradients(), dropout, softcap, sinks, implementation,
    )  # fmt: skip


def scores(
    encoding: Encoding,
    q: Heads,
    k: Keys,
    q_pos: Positions | Points,
    k_pos: KeyPositions | Points,
    scale: float | None = None,
    *,
    x: Float[Tensor, "batch token width"] | None = None,
    k_x: Float[Tensor, "batch key width"] | None = None,
    mask: Mask | Seen | None = None,
) -> Scores:
    """Compute logits of all pairs, from bare positions: properties are measured on them.

    `x` and `k_x` are what q and k are projections of, for an encoding that reads it in `on_hidden`;
    `k_x` None: as `x`. The bias is told of the `mask`, which hides nothing here.
    """
    at, k_at = encoding.prepare(q_pos), encoding.prepare(k_pos)
    if x is not None:
        at, k_at = encoding.on_hidden(x, at), encoding.on_hidden(x if k_x is None else k_x, k_at)
    checked_at(encoding, at, q, "`q_pos`")
    checked_at(encoding, k_at, k, "`k_pos`")
    call = made(encoding, q, k, k, at, k_at, mask, scale, "reference")
    call = hooks.scored(hooks.encoded(call))
    seen = None if mask is None else mask(*pairs(call.shape, device=q.device))
    return logits(call._replace(k=per_query_head(call.k, q)), slice(None), seen=seen)
