"""Refuse inputs of attention that do not fit together, each in one sentence."""

from typing import Any, get_args

import torch
from torch import Tensor

from posenc.attention.call import Call, Implementation, needs_gradients
from posenc.attention.spacing import strip
from posenc.core.arguments import brief, number, positive, probability
from posenc.core.encoding import Encoding
from posenc.core.fits import check_sizes, checked_at, prepared
from posenc.core.masks import Mask, refuse_no_function
from posenc.core.tracing import beyond_gradients, readable

IMPLEMENTATIONS: tuple[str, ...] = get_args(Implementation)


def checked(call: Call) -> Call:
    """The call, whose inputs fit together, with `at` and `k_at` as hooks take them."""
    check_tensors(call)
    check_mask(call)
    at, tokens, keys = call.at, call.q.shape[-2], call.k.shape[-2]
    if at is None:
        if keys != tokens:
            raise ValueError(
                f"{tokens} queries and {keys} keys: where do they stand? Pass `at` and"
                " `k_at`, made by `encoding.prepare`."
            )
        at = prepared(call.encoding, torch.arange(tokens, device=call.q.device), "`at`")
    at = checked_at(call.encoding, at, call.q, "`at`")
    k_at = at
    if call.k_at is not None or keys != tokens:
        k_at = checked_at(call.encoding, at if call.k_at is None else call.k_at, call.k, "`k_at`")
    return weighing(call, at, k_at)


def weighing(call: Call, at: Any, k_at: Any) -> Call:
    """The call, with what makes its weights checked, and what is known of its inputs."""
    check_implementation(call.implementation)
    check_softmax(call)
    encoding, q, scale, inputs = call.encoding, call.q, call.scale, call.inputs
    can_read = readable(*inputs) and not beyond_gradients()
    return call._replace(
        at=at,
        k_at=k_at,
        scale=encoding.scale(q.shape[-1]) if scale is None else float(number(scale, "scale")),
        seen=strip(call.mask, q.shape[-2], call.k.shape[-2]) if can_read else None,
        readable=can_read,
        trains=needs_gradients(encoding, *inputs),
    )


def check_tensors(call: Call) -> None:
    """Refuse inputs that would end in an error of torch's, or broadcast in silence.

    It looks at types and shapes only.
    """
    encoding, q, k, v, *_ = call
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        for name, x in (("q", q), ("k", k), ("v", v)):
            if not isinstance(x, Tensor):
                raise TypeError(
                    f"`{name}` must be a tensor (batch, head, token, channel), got {brief(x)}."
                )
    if not isinstance(encoding, Encoding):
        raise TypeError(
            f"`encoding` must be an encoding, `RoPE(64)` for instance, got {brief(encoding)}: make"
            " one; `posenc.create` does by name."
        )
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(f"attention takes (batch, head, token, channel), got {_shapes(q, k, v)}.")
    batch, heads, _, channels = q.shape
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


def check_implementation(implementation: Any) -> None:
    """Refuse a name that no way to compute attention has."""
    if not isinstance(implementation, str):
        raise TypeError(
            f"`implementation` must be a name, such as 'auto', got {brief(implementation)}."
        )
    if implementation not in IMPLEMENTATIONS:
        names = ", ".join(map(repr, IMPLEMENTATIONS))
        raise ValueError(f"`implementation` must be one of {names}, got {implementation!r}.")


def check_softmax(call: Call) -> None:
    """Refuse a `dropout`, `softcap` or `sinks` that is none."""
    q, sinks = call.q, call.sinks
    if call.plain and call.dropout == 0.0:
        return
    probability(call.dropout, "dropout")
    if call.softcap is not None:
        positive(call.softcap, "softcap")
    if sinks is None:
        return
    if not isinstance(sinks, Tensor) or sinks.shape != (q.shape[1],):
        raise ValueError(
            f"`sinks` must be a tensor of one logit for each of the {q.shape[1]} heads of q, got"
            f" {brief(sinks)}."
        )
    if not sinks.is_floating_point() or sinks.device != q.device:
        raise ValueError(
            f"`sinks` must be floats on the device of q, {q.device}, got {sinks.dtype} on"
            f" {sinks.device}: convert."
        )


def check_mask(call: Call) -> None:
    """Refuse a mask that was made for other tokens, and what is no mask."""
    mask, q, k = call.mask, call.q, call.k
    if isinstance(mask, Mask):
        mask.check(len(q), q.shape[-2], k.shape[-2], q.shape[1])
    elif mask is not None:
        some = 0 not in (*q.shape[:-1], k.shape[-2])
        refuse_no_function(mask, device=q.device if some else None)


def _shapes(q: Tensor, k: Tensor, v: Tensor) -> str:
    return f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
