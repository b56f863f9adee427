"""Check the arguments of `attend`, and create a `Call` from them."""

from itertools import chain
from typing import Any, get_args

import torch
from torch import Tensor

from posenc.attention.call import Call, Implementation
from posenc.attention.spacing import diagonal_band
from posenc.compat.tracing import fits_cpu_kernels
from posenc.core.check_positions import check_sizes, checked_at, prepared
from posenc.core.encoding import Encoding, placed
from posenc.core.hooks import Placed
from posenc.core.masks import Mask, refuse_no_function
from posenc.support.arguments import brief, number, positive, probability

IMPLEMENTATIONS: tuple[str, ...] = get_args(Implementation)


def validate(
    q: Any, k: Any, v: Any, encoding: Any, at: Any, k_at: Any, mask: Any, scale: Any,
    dropout: Any = 0.0, softcap: Any = None, sinks: Any = None, implementation: Any = "auto",
) -> Call:  # fmt: skip
    """Check the arguments of `attend`, and return them as a `Call`."""
    check_tensors(encoding, q, k, v)
    tokens, keys = q.shape[2], k.shape[2]
    if at is None:
        if keys != tokens:
            raise ValueError(
                f"`at` and `k_at` must be given, because there are {tokens} queries but {keys}"
                " keys. Pass the positions of queries and keys, or the results of"
                " `encoding.prepare`."
            )
        at = prepared(encoding, torch.arange(tokens, device=q.device), "`at`")
    at = checked_at(encoding, at, q, "`at`")
    if k_at is not None or keys != tokens:
        k_at = checked_at(encoding, at if k_at is None else k_at, k, "`k_at`")
    parts = placed(encoding, at, at if k_at is None else k_at)
    return resolve_softmax(
        encoding, parts, q, k, v, mask, scale, dropout, softcap, sinks, implementation
    )


def resolve_softmax(
    encoding: Encoding,
    parts: list[Placed],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Any = None,
    scale: Any = None,
    dropout: Any = 0.0,
    softcap: Any = None,
    sinks: Any = None,
    implementation: Any = "auto",
) -> Call:
    """Check the mask and the arguments of the softmax, and return a `Call` that contains them."""
    batch, heads, tokens, channels = q.shape
    keys = k.shape[2]
    if isinstance(mask, Mask):
        mask.check(batch, tokens, keys, heads)
    elif mask is not None:
        refuse_no_function(mask, device=q.device if batch and heads and tokens and keys else None)
    if implementation != "auto":
        check_implementation(implementation)
    plain = softcap is None and sinks is None and dropout == 0.0
    if not plain:
        check_softmax(q, dropout, softcap, sinks)
    inputs = (q, k, v) if sinks is None else (q, k, v, sinks)
    can_read = fits_cpu_kernels(*inputs)
    seen = diagonal_band(mask, tokens, keys) if can_read else None
    # A mask that hides no pair is dropped
    if seen is not None and seen.low == 1 - keys and seen.high == tokens - 1:
        mask = None
    causal = isinstance(mask, Mask) and (mask.is_causal or (seen is not None and seen.is_causal))
    hides = mask is not None and not causal and (seen is None or not seen.sees_all_keys)
    acts_on = parts[0].acts_on if len(parts) == 1 else encoding.acts_on
    scale = encoding.scale(channels) if scale is None else float(number(scale, "scale"))
    trains = torch.is_grad_enabled() and learns(encoding, *inputs)
    exact = torch.float64 if q.dtype is torch.float64 else torch.float32
    return Call(
        encoding, parts, acts_on, q, k, v, scale, mask, seen, causal, hides, can_read, trains,
        plain, "by_weight" in acts_on, exact, dropout, softcap, sinks, implementation,
    )  # fmt: skip


def learns(encoding: Encoding, *inputs: Tensor) -> bool:
    """Test whether one of `inputs`, or a parameter of the encoding, requires a gradient."""
    for x in chain(inputs, encoding.parameters()):
        if x.requires_grad:
            return True
    return False


def check_tensors(encoding: Any, q: Any, k: Any, v: Any) -> None:
    """Check types, shapes, dtypes and devices of the inputs of attention.

    torch would reject wrong inputs later, or broadcast them.
    """
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        for name, x in (("q", q), ("k", k), ("v", v)):
            if not isinstance(x, Tensor):
                raise TypeError(
                    f"`{name}` must be a tensor (batch, head, token, channel), got {brief(x)}."
                )
    if not isinstance(encoding, Encoding):
        raise TypeError(
            f"`encoding` must be an encoding, `RoPE(64)` for instance, got {brief(encoding)}."
            " Create an encoding by its name with `posenc.create`."
        )
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ValueError(
            f"q, k and v must be (batch, head, token, channel), got {_shapes(q, k, v)}."
        )
    batch, heads, _, channels = q.shape
    k_shape = k.shape
    if k_shape[:3] != v.shape[:3] or batch != k_shape[0] or channels != k_shape[3]:
        raise ValueError(
            "q and k must agree in batch and channels, and k and v in batch, heads and tokens, got"
            f" {_shapes(q, k, v)}."
        )
    if not k_shape[1] or heads % k_shape[1]:
        raise ValueError(
            f"the number of heads of q must be a multiple of that of k, got {_shapes(q, k, v)}."
        )
    check_sizes(encoding, heads, channels, needs_values=not q.is_meta)
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(
            f"q, k and v must have one dtype, got {q.dtype}, {k.dtype} and {v.dtype}. Convert them."
        )
    if not q.is_floating_point():
        raise TypeError(
            f"q, k and v must be real floating-point numbers, got {q.dtype}. Convert them."
        )
    if not q.device == k.device == v.device:
        raise ValueError(
            f"q, k and v must be on one device, got {q.device}, {k.device}, {v.device}. Move them."
        )


def check_implementation(implementation: Any) -> None:
    """Raise an error for an unknown `implementation`."""
    if not isinstance(implementation, str):
        raise TypeError(
            f"`implementation` must be a name, such as 'auto', got {brief(implementation)}."
        )
    if implementation not in IMPLEMENTATIONS:
        names = ", ".join(map(repr, IMPLEMENTATIONS))
        raise ValueError(f"`implementation` must be one of {names}, got {implementation!r}.")


def check_softmax(q: Tensor, dropout: Any, softcap: Any, sinks: Any) -> None:
    """Check `dropout`, `softcap` and `sinks`."""
    probability(dropout, "dropout")
    if softcap is not None:
        positive(softcap, "softcap")
    if sinks is None:
        return
    if not isinstance(sinks, Tensor) or sinks.shape != (q.shape[1],):
        raise ValueError(
            f"`sinks` must be a tensor with one logit for each of the {q.shape[1]} heads of q, got"
            f" {brief(sinks)}."
        )
    if not sinks.is_floating_point() or sinks.device != q.device:
        raise ValueError(
            f"`sinks` must be floats on the device of q, {q.device}, got {sinks.dtype} on"
            f" {sinks.device}. Convert them."
        )


def _shapes(q: Tensor, k: Tensor, v: Tensor) -> str:
    return f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
