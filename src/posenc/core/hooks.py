"""Apply the hooks of encodings, and check what each hook returns.

All hooks of attention are called here. The parts of a `Sum` are applied and checked one by one, so
that messages name the part.
"""

from collections.abc import Sequence
from inspect import CO_VARARGS
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posenc.core.biases import ScoreBias, added, as_bias
from posenc.core.shapes import Embeddings, Heads, Keys
from posenc.support.arguments import brief

Shape = tuple[int, ...]
OF_KEYS = ("on_keys", "on_values")  # the hooks that receive the positions of the keys


class Placed(NamedTuple):
    """An encoding in an attention call, with its overridden hooks and its prepared positions."""

    encoding: Any  # an `Encoding`; `encoding.py` imports this file
    acts_on: tuple[str, ...]
    at: Any
    k_at: Any


def applied(hook: str, parts: Sequence[Placed], x: Tensor, heads: int | None = None) -> Tensor:
    """Apply one hook, such as `on_queries`, of each encoding to x, one encoding after another.

    `heads` is the number of query heads, which `on_keys` and `on_values` may return; None: unknown.
    """
    # `on_output` inverts `on_values`, so the parts are applied in reverse order
    for part in reversed(parts) if hook == "on_output" else parts:
        if hook in part.acts_on:
            out = getattr(part.encoding, hook)(x, part.k_at if hook in OF_KEYS else part.at)
            x = _checked(part.encoding, hook, out, x, heads)
    return x


def queries_and_keys(parts: Sequence[Placed], q: Heads, k: Keys) -> tuple[Tensor, Tensor]:
    """Apply `on_queries` and `on_keys`, and check that both return equally many channels."""
    q = applied("on_queries", parts, q)
    k = applied("on_keys", parts, k, q.shape[1])
    if q.shape[-1] != k.shape[-1]:
        names = " + ".join(type(part.encoding).__name__ for part in parts)
        raise TypeError(
            f"`on_queries` and `on_keys` must return the same number of channels, got"
            f" {q.shape[-1]} and {k.shape[-1]} from {names}. Append the same number of channels in"
            " both hooks."
        )
    return q, k


def bias_of(parts: Sequence[Placed], q: Tensor, k: Tensor, scale: float) -> ScoreBias | None:
    """Apply `on_scores` to encoded queries and keys, and sum the biases of all encodings."""
    biases: list[ScoreBias] = []
    for part in parts:
        if "on_scores" not in part.acts_on:
            continue
        bias = part.encoding.on_scores(q, k, part.at, part.k_at, scale)
        if isinstance(bias, Tensor):
            check_broadcast(part.encoding, "on_scores", bias, (*q.shape[:3], k.shape[-2]))
        elif not (bias is None or isinstance(bias, ScoreBias) or hasattr(bias, "block")):
            _check_function(part.encoding, bias)
        wrapped = bias if isinstance(bias, ScoreBias) else as_bias(bias, q, k)
        if wrapped is not None:
            biases.append(wrapped)
    return biases[0] if len(biases) == 1 else added(biases)


def by_weight(
    parts: Sequence[Placed], weights: Tensor, rows: slice, channels: int | None = None
) -> Tensor | None:
    """Sum the output terms that `by_weight` of each encoding returns; None if there are none.

    `channels` is the number of channels of the values; None: unknown.
    """
    total = None
    for part in parts:
        if "by_weight" in part.acts_on:
            extra = part.encoding.by_weight(weights, part.at, part.k_at, rows)
            if extra is None:
                continue
            last = extra.shape[-1:] if channels is None else (channels,)
            check_broadcast(part.encoding, "by_weight", extra, (*weights.shape[:3], *last))
            total = extra if total is None else total + extra
    return total


def hidden(encoding: Any, x: Embeddings, at: Any) -> Any:
    """Apply `on_hidden` of an encoding or a `Sum`, and check that it does not return None."""
    at = encoding.on_hidden(x, at)
    if at is None:
        raise TypeError(
            f"`{type(encoding).__name__}.on_hidden` must return `at`, the argument of the other"
            " hooks, got None. End with `return at`."
        )
    return at


def _checked(encoding: Any, hook: str, out: Any, x: Tensor, heads: int | None) -> Tensor:
    """Return a hook's result, after a check that its shape and dtype fit the hook's input x."""
    if torch.compiler.is_compiling():
        return out
    whole, due = hook == "on_embeddings", x.shape[:-1]
    if isinstance(out, Tensor) and out.is_floating_point():
        fits = out.shape == x.shape if whole else out.shape[:-1] == due
        if fits or (hook in OF_KEYS and _for_query_heads(out, x, heads)):
            if out.dtype is x.dtype or torch.is_autocast_enabled(out.device.type):
                return out
            raise TypeError(
                f"`{type(encoding).__name__}.{hook}` must return the dtype of its input,"
                f" {x.dtype}, got {out.dtype}. End with `.to({x.dtype})`, or `.to(x.dtype)`."
            )
    # A hook may change the number of channels of heads, but not of embeddings
    shapes = [_shape(x.shape) if whole else _shape(due, open_end=True)]
    if hook in OF_KEYS and heads not in (None, due[1]):
        shapes.append(_shape((due[0], heads, *due[2:]), open_end=True))
    raise TypeError(
        f"`{type(encoding).__name__}.{hook}` must return floats of shape {' or '.join(shapes)}, got"
        f" {_describe(out)}. Return a tensor of that shape."
    )


def _for_query_heads(out: Tensor, x: Tensor, heads: int | None) -> bool:
    """Test whether a hook expanded keys or values x to one head for each query head."""
    if out.ndim != x.ndim or (out.shape[0], *out.shape[2:-1]) != (x.shape[0], *x.shape[2:-1]):
        return False
    return out.shape[1] == heads or (heads is None and out.shape[1] % x.shape[1] == 0)


def _check_function(encoding: Any, bias: Any) -> None:
    """Raise TypeError unless `bias` is a Python function of the indices b, h, i and j."""
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
        f"`{type(encoding).__name__}.on_scores` must return a tensor that broadcasts to (batch,"
        " head, query, key), a function of one pair, (b, h, i, j) -> value, or an object with a"
        f" method `block`, got {got}."
    )


def check_broadcast(encoding: Any, hook: str, out: Any, due: Shape) -> None:
    """Check that the result of a hook can be broadcast to the required shape `due`."""
    if torch.compiler.is_compiling():
        return
    if isinstance(out, Tensor) and out.dtype is not torch.bool and not out.is_complex():
        fits = out.ndim <= len(due)
        for size, full in zip(reversed(out.shape), reversed(due), strict=False):
            fits = fits and (size == full or size == 1)
        if fits:
            return
    masking = isinstance(out, Tensor) and out.dtype is torch.bool
    remedy = " Use `mask` to hide keys." if masking else ""
    raise TypeError(
        f"`{type(encoding).__name__}.{hook}` must return numbers that broadcast to {_shape(due)},"
        f" got {_describe(out)}.{remedy}"
    )


def _shape(sizes: Sequence[Any], open_end: bool = False) -> str:
    return f"({', '.join(map(str, [*sizes, '…'] if open_end else sizes))})"


def _describe(out: Any) -> str:
    if not isinstance(out, Tensor):
        return brief(out)
    return f"{out.dtype} of shape {_shape(out.shape)}"
