"""Attention, written once, to show where each hook lands. This is the map of the library.

    weights = softmax( on_queries(q) · on_keys(k)ᵀ · scale + on_scores(q, k) )
    out = on_output( weights · on_values(v) + by_weight(weights) )
    where q, k, v are projections of on_embeddings(x) and at = on_hidden(x, prepare(pos))

`dispatch.py` holds the ways to compute it: the definition, and faster ones that equal it.
"""

from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from posenc.attention.call import Call, per_query_head, trains, with_same_heads
from posenc.attention.decoding import step_of
from posenc.attention.dispatch import Explanation, Implementation, chosen, logits, run, zero_unseen
from posenc.attention.sinks import Sinks
from posenc.attention.spacing import Strip, strip
from posenc.core.arguments import number, positive, probability, shown
from posenc.core.biases import as_bias, pairs
from posenc.core.cache import cached_with
from posenc.core.elsewhere import WEIGHED, answering
from posenc.core.encoding import Encoding
from posenc.core.fits import check_sizes, checked_at, from_zero, prepared
from posenc.core.masks import Mask, refuse_no_function
from posenc.core.positions import sequence
from posenc.core.shapes import Heads, KeyPositions, Keys, Points, Positions, Scores, Seen, Values
from posenc.core.tracing import beyond_gradients, readable


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
    `explain` says which, and why.

    Raises ValueError for shapes or positions that do not fit, and where an implementation is asked
    for what it cannot do; "auto" picks one that can.
    """
    if at is None is k_at:
        at = from_zero(encoding, q, k)
    step = None
    if implementation == "auto" and softcap is None is sinks and dropout == 0.0:
        step = step_of(q, k, v, encoding, at, k_at, mask, scale)
        out = None if step is None else step.attend(q, k, v, encoding, at, k_at)
        if out is not None:
            return out
    weighed = dropout, softcap, sinks
    call = _call(q, k, v, encoding, at, k_at, mask, scale, implementation, weighed)
    if step is not None:
        step.learn(call, at, k_at)
    return encoding.on_output(run(call, implementation), call.at)


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
    weighed = dropout, softcap, sinks
    return chosen(_call(q, k, v, encoding, at, k_at, mask, scale, "auto", weighed))


def _call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Encoding,
    at: Any,
    k_at: Any,
    mask: Mask | Seen | None,
    scale: float | None,
    implementation: Implementation,
    weighed: tuple[float, float | None, Tensor | None],
) -> Call:
    """Apply the hooks, and gather what every path computes from."""
    looks = readable(q, k, v) and not beyond_gradients()
    at, k_at, seen = _placed(encoding, q, k, v, at, k_at, mask, looks)
    if not isinstance(implementation, str):
        raise TypeError(
            f"`implementation` must be a name, such as 'auto', got {shown(implementation)}."
        )
    dropout, softcap, sinks = weighed
    plain = dropout == 0.0 and softcap is None and sinks is None
    if not plain:
        _check_softmax_options(q, dropout, softcap, sinks)
        looks = looks and (sinks is None or readable(sinks))
    scale = encoding.scale(q.shape[-1]) if scale is None else float(number(scale, "scale"))
    acts_on = encoding.acts_on
    learns = trains(encoding, q, k, v, *(() if sinks is None else (sinks,)))
    seen = seen if looks else None  # sinks may be traced where the rest is not
    by_strips = implementation in ("auto", "view")
    # Paths that go by a strip of pairs never touch a key that nobody sees.
    skips = seen is not None and by_strips and not learns and "by_weight" not in acts_on
    causal = isinstance(mask, Mask) and mask.is_causal
    if not (mask is None or causal or skips or (seen is not None and seen.sees_all_keys)):
        k, v = zero_unseen(q, k, v, mask)
    q, k = encoding.on_queries(q, at), encoding.on_keys(k, k_at)
    bias = None
    if "on_scores" in acts_on:
        bias = as_bias(encoding.on_scores(q, k, at, k_at, scale), q, k)
        if bias is not None and implementation != "reference" and softcap is None:  # caps q · k
            q, k, bias = bias.absorbed(q, k, not (by_strips and looks and plain) or learns)
    v = encoding.on_values(v, k_at)
    k, v = with_same_heads(q, k, v)
    if scale <= 0:  # torch's kernels take the sign of −∞ with it
        q, scale = (-q, -scale) if scale < 0 else (q * 0, 1.0)
    by_weight = "by_weight" in acts_on
    hooked = (encoding, q, k, v, at, k_at, scale, bias, mask, seen, by_weight, learns, looks)
    return Call(*hooked) if plain else Call(*hooked, *weighed)


class Placed(NamedTuple):
    """The parts of a call that depend on positions, mask and shapes alone: layers share them."""

    at: Any
    k_at: Any
    seen: Strip | None


def _placed(
    encoding: Encoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    at: Any,
    k_at: Any,
    mask: Mask | Seen | None,
    looks: bool,
) -> Placed:
    """Check that everything fits, once for all calls that share the positions."""
    k_at = at if k_at is None else k_at

    def place() -> Placed:
        tokens, keys = _check_inputs(encoding, q, k, v, mask)
        if at is None and keys != tokens:
            raise ValueError(
                f"{tokens} queries and {keys} keys: where do they stand? Pass `at` and"
                " `k_at`, made by `encoding.prepare`."
            )
        start = prepared(encoding, sequence(tokens, 0, q.device), "`at`") if at is None else at
        q_stand = checked_at(encoding, start, q, "`at`")
        k_stand = checked_at(encoding, start if k_at is None else k_at, k, "`k_at`")
        seen = strip(mask, tokens, keys) if looks else None
        return Placed(q_stand, k_stand, seen)

    def seen_and_sameness() -> tuple[Strip | None, bool]:
        placed = place()
        return placed.seen, placed.at is at and placed.k_at is k_at

    if not looks or at is None or not hasattr(k_at, "__dict__") or isinstance(k_at, type):
        return place()
    of_mask = (mask.made_of or ()) if isinstance(mask, Mask) else ()
    what = "placed", q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype
    seen, as_they_are = cached_with(
        k_at, what, (encoding, at, k_at, mask, *of_mask), seen_and_sameness
    )
    if not as_they_are:  # tables made here are made in every call, for what is learned may change
        return place()
    check_sizes(encoding, q.shape[1], q.shape[3], needs_values=True)
    return Placed(at, k_at, seen)


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
    scale = encoding.scale(q.shape[-1]) if scale is None else scale
    q, k = encoding.on_queries(q, at), per_query_head(encoding.on_keys(k, k_at), q)
    bias = as_bias(encoding.on_scores(q, k, at, k_at, scale), q, k)
    call = Call(encoding, q, k, k, at, k_at, scale, bias, mask)
    seen = None if mask is None else mask(*pairs(call.shape, device=q.device))
    return logits(call, slice(None), seen=seen)


def _check_inputs(
    encoding: Encoding, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Seen | None
) -> tuple[int, int]:
    """Refuse inputs that would end in an error of torch's, or broadcast in silence.

    Returns the number of queries and of keys. It looks at types and shapes only.
    """
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        for name, x in (("q", q), ("k", k), ("v", v)):
            if not isinstance(x, Tensor):
                raise TypeError(
                    f"`{name}` must be a tensor (batch, head, token, channel), got {shown(x)}."
                )
    if not isinstance(encoding, Encoding):
        raise TypeError(
            f"`encoding` must be an encoding, `RoPE(64)` for instance, got {shown(encoding)}: make"
            " one; `posenc.create` does by name."
        )
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(f"attention takes (batch, head, token, channel), got {_shapes(q, k, v)}.")
    batch, heads, tokens, channels = q.shape
    k_shape = k.shape
    if k_shape[:3] != v.shape[:3] or batch != k_shape[0] or channels != k_shape[3]:
        raise ValueError(
            "q and k must agree in batch and channels, k and v in batch, heads and tokens:"
            f" got {_shapes(q, k, v)}."
        )
    if not k_shape[1] or heads % k_shape[1]:
        raise ValueError(f"the heads of q must be a multiple of those of k: {_shapes(q, k, v)}.")
    check_sizes(encoding, heads, channels, needs_values=not q.is_meta)
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k and v must be of one dtype: {q.dtype}, {k.dtype}, {v.dtype}.")
    if not q.is_floating_point():
        raise TypeError(f"q, k and v must be real floating-point numbers, got {q.dtype}: convert.")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v must be on one device: {q.device}, {k.device}, {v.device}.")
    if isinstance(mask, Mask):
        mask.check(batch, tokens, k_shape[2])
    elif mask is not None:
        some = 0 not in (batch, heads, tokens, k_shape[2])
        refuse_no_function(mask, device=q.device if some else None)
    return tokens, k_shape[2]


def _check_softmax_options(q: Tensor, dropout: float, softcap: float | None, sinks: Any) -> None:
    probability(dropout, "dropout")
    if softcap is not None:
        positive(softcap, "softcap")
    if sinks is None:
        return
    if not isinstance(sinks, Tensor) or sinks.shape != (q.shape[1],):
        raise ValueError(
            f"`sinks` must be a tensor of one logit for each of the {q.shape[1]} heads of q, got"
            f" {shown(sinks)}."
        )
    if not sinks.is_floating_point() or sinks.device != q.device:
        raise ValueError(
            f"`sinks` must be floats on the device of q, {q.device}, got {sinks.dtype} on"
            f" {sinks.device}: convert."
        )


def _shapes(q: Tensor, k: Tensor, v: Tensor) -> str:
    return f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
