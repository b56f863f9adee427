"""Apply the hooks of an encoding, each in one place, and check what it gives back.

Of a `Sum` each part is applied and checked by itself, so that a message names the part.
"""

from collections.abc import Iterator
from inspect import CO_VARARGS
from typing import Any

import torch
from torch import Tensor

from posenc.attention.call import Call
from posenc.core.arguments import brief
from posenc.core.biases import ScoreBias, added, as_bias, per_query_head
from posenc.core.encoding import Encoding, Sum, leaves, overrides
from posenc.core.prepared import Parts
from posenc.core.shapes import Embeddings, Heads, Keys

Shape = tuple[int, ...]


def embedded(encoding: Encoding, x: Embeddings, at: Any) -> Embeddings:
    """Apply `on_embeddings`."""
    for leaf, leaf_at in _acting(encoding, "on_embeddings", at):
        out = leaf.on_embeddings(x, leaf_at)
        x = _checked(leaf, "on_embeddings", out, x.dtype, x.shape)
    return x


def encoded(call: Call) -> Call:
    """Apply `on_queries`, `on_keys` and `on_values`."""
    q, k = queries_and_keys(call.encoding, call.q, call.k, call.at, call.k_at)
    v = _of_keys(call.encoding, "on_values", call.v, call.k_at, q)
    as_it_was = q is call.q and k is call.k and v is call.v
    return call if as_it_was else call._replace(q=q, k=k, v=v)


def queries_and_keys(
    encoding: Encoding, q: Heads, k: Keys, at: Any, k_at: Any
) -> tuple[Tensor, Tensor]:
    """Apply `on_queries` and `on_keys`: q and k as they enter the dot product."""
    for leaf, leaf_at in _acting(encoding, "on_queries", at):
        q = _checked(leaf, "on_queries", leaf.on_queries(q, leaf_at), q.dtype, q.shape[:3])
    k = _of_keys(encoding, "on_keys", k, k_at, q)
    if q.shape[-1] != k.shape[-1]:
        raise TypeError(
            f"`on_queries` and `on_keys` of {type(encoding).__name__} must return equally many"
            f" channels, got {q.shape[-1]} and {k.shape[-1]}."
        )
    return q, k


def _of_keys(encoding: Encoding, hook: str, x: Tensor, at: Any, q: Tensor) -> Tensor:
    """Apply a hook to keys or values that heads share, or that it gives each head of q."""
    for leaf, leaf_at in _acting(encoding, hook, at):
        texts, heads, tokens, _ = x.shape
        shared, own = (texts, heads, tokens), (texts, q.shape[1], tokens)
        x = _checked(leaf, hook, getattr(leaf, hook)(x, leaf_at), x.dtype, shared, own)
    return x


def scored(call: Call) -> Call:
    """Apply `on_scores` to a call of encoded queries and keys: the call with its bias."""
    bias = bias_of(call.encoding, call.q, call.k, call.at, call.k_at, call.scale)
    q, k, v, scale = call.q, call.k, call.v, call.scale
    if bias is None and scale > 0 and k.shape[1] == v.shape[1]:
        return call
    if bias is not None and call.implementation != "reference" and call.softcap is None:
        in_parts = call.implementation in ("auto", "toeplitz") and call.readable and call.plain
        q, k, bias = bias.absorbed(q, k, not in_parts)
    # The hooks may have returned different numbers of heads for k and v
    if k.shape[1] != v.shape[1]:
        k, v = per_query_head(k, q), per_query_head(v, q)
    # torch's kernels multiply the −∞ of hidden keys by the scale, and its sign
    if scale <= 0:
        q, scale = (-q, -scale) if scale < 0 else (q * 0, 1.0)
    return call._replace(q=q, k=k, v=v, scale=scale, bias=bias)


def bias_of(
    encoding: Encoding, q: Tensor, k: Tensor, at: Any, k_at: Any, scale: float
) -> ScoreBias | None:
    """The bias that `on_scores` returns of encoded queries and keys, parts of a sum added."""
    biases = []
    for leaf, leaf_at, leaf_k_at in _acting(encoding, "on_scores", at, k_at):
        bias = leaf.on_scores(q, k, leaf_at, leaf_k_at, scale)
        if isinstance(bias, Tensor):
            check_broadcast(leaf, "on_scores", bias, (*q.shape[:3], k.shape[-2]))
        elif not (bias is None or isinstance(bias, ScoreBias) or hasattr(bias, "block")):
            _check_function(leaf, bias)
        biases.append(as_bias(bias, q, k))
    return added([bias for bias in biases if bias is not None])


def by_weight(call: Call, weights: Tensor, rows: slice, shape: Shape) -> Tensor | None:
    """What `by_weight` adds to the output, of this shape, of some queries; or None."""
    extras = []
    for leaf, at, k_at in _acting(call.encoding, "by_weight", call.at, call.k_at):
        extra = leaf.by_weight(weights, at, k_at, rows)
        if extra is not None:
            extras.append(check_broadcast(leaf, "by_weight", extra, shape))
    return sum(extras[1:], extras[0]) if extras else None


def finished(call: Call, out: Tensor) -> Tensor:
    """Apply `on_output`; what acted on values last is the first to be turned back."""
    for leaf, leaf_at in reversed([*_acting(call.encoding, "on_output", call.at)]):
        turned = leaf.on_output(out, leaf_at)
        out = _checked(leaf, "on_output", turned, out.dtype, out.shape[:3])
    return out


def flat(at: Any) -> Iterator[Any]:
    """The `Prepared` or positions of each of the `leaves` of a sum, in their order."""
    if isinstance(at, Parts):
        for part in at.parts:
            yield from flat(part)
    else:
        yield at


def nested(encoding: Encoding, ats: Iterator[Any]) -> Any:
    """The inverse of `flat`."""
    if isinstance(encoding, Sum):
        return encoding.of_parts([nested(part, ats) for part in encoding])
    return next(ats)


def _acting(encoding: Encoding, hook: str, *ats: Any) -> list[tuple[Any, ...]]:
    """The parts that override a hook, each with its own `at`."""
    if not isinstance(encoding, Sum):
        return [(encoding, *ats)] if overrides(encoding, hook) else []
    parts = zip(leaves(encoding), *map(flat, ats), strict=True)
    return [part for part in parts if overrides(part[0], hook)]


def _checked(leaf: Encoding, hook: str, out: Any, dtype: torch.dtype, *due: Shape) -> Tensor:
    """Check what a hook returned: of one of the shapes that are `due`, channels aside if 4-D."""
    if torch.compiler.is_compiling():
        return out
    if isinstance(out, Tensor) and out.is_floating_point():
        if out.shape in due or (out.ndim == 4 and out.shape[:3] in due):
            if out.dtype is dtype or torch.is_autocast_enabled(out.device.type):
                return out
            raise TypeError(
                f"`{type(leaf).__name__}.{hook}` must return the dtype that it is given, {dtype},"
                f" got {out.dtype}: end with `.to({dtype})`, or that of what comes in."
            )
    # Embeddings (batch, token, channel) name their channels within the shape; heads do not.
    channels = hook != "on_embeddings"
    shapes = " or ".join(dict.fromkeys(_shape(shape, channels) for shape in due))
    raise TypeError(
        f"`{type(leaf).__name__}.{hook}` must return floats of shape {shapes}, got {_came(out)}."
    )


def _check_function(leaf: Encoding, bias: Any) -> None:
    """Refuse a bias that is no function of one pair."""
    if torch.compiler.is_compiling():
        return
    code = getattr(bias, "__code__", None)
    if callable(bias) and (code is None or code.co_argcount > 3 or code.co_flags & CO_VARARGS):
        return
    got = (
        brief(bias)
        if code is None
        else f"one of ({', '.join(code.co_varnames[: code.co_argcount])})"
    )
    raise TypeError(
        f"`{type(leaf).__name__}.on_scores` must return a tensor that broadcasts to (batch, head,"
        f" query, key), a function of one pair, (b, h, i, j) -> value, or an object with `block`,"
        f" got {got}."
    )


def check_broadcast(leaf: Encoding, hook: str, out: Any, due: Shape) -> Tensor:
    """Check that what a hook returned broadcasts to the shape that is `due`, and no further."""
    if torch.compiler.is_compiling():
        return out
    if isinstance(out, Tensor):
        sizes = zip(reversed(out.shape), reversed(due), strict=False)
        fits = out.ndim <= len(due) and all([size in (1, full) for size, full in sizes])
        if fits and out.dtype is not torch.bool and not out.is_complex():
            return out
    masking = isinstance(out, Tensor) and out.dtype is torch.bool
    remedy = ": what a query sees is said by `mask`" if masking else ""
    raise TypeError(
        f"`{type(leaf).__name__}.{hook}` must return numbers that broadcast to {_shape(due)}, got"
        f" {_came(out)}{remedy}."
    )


def _shape(sizes: Shape, open_end: bool = False) -> str:
    return f"({', '.join(map(str, [*sizes, '…'] if open_end else sizes))})"


def _came(out: Any) -> str:
    if not isinstance(out, Tensor):
        return brief(out)
    return f"{out.dtype} of shape {_shape(out.shape)}"
