"""Checks of single arguments, which return the argument or raise an error with the reason."""

import os
import sys
from math import prod
from numbers import Integral, Real
from typing import Any

import torch
from torch import nn

LARGEST = sys.float_info.max
LARGEST_COUNT = 2**62
PRECISIONS = "float32", "bfloat16"
ASSUMED_MEMORY = 2**36  # bytes, 64 GiB, for systems that do not report their memory


def whole_number(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be a whole number, got {brief(value)}. Pass an int.")
    return int(value)


def count(value: Any, name: str, least: int = 1, most: int | None = None) -> int:
    """Check that a value is a whole number from `least` to `most`, and return it.

    >>> count(8, "heads")
    8
    """
    value = whole_number(value, name)
    limit = LARGEST_COUNT if most is None else most
    if not least <= value <= limit:
        below = most is None and value < least
        span = f"of at least {least:,}" if below else f"from {least:,} to {limit:,}"
        raise ValueError(f"`{name}` must be a whole number {span}, got {brief(value)}.")
    return value


def channels(value: Any, name: str = "dim") -> int:
    return count(value, name, most=2**24)


def paired(value: Any, name: str) -> int:
    """Check that a number of channels is even, because channels form pairs, and return it."""
    if whole_number(value, name) < 2 or value % 2:
        raise ValueError(
            f"`{name}` must be even and at least 2, because channels form pairs, got {value}."
        )
    return channels(value, name)


def query_heads(value: Any) -> int:
    return count(value, "heads", most=2**20)


def layer_sizes(width: Any, heads: Any) -> tuple[int, int, int]:
    """Check the width and number of heads of a layer; return both with the channels per head.

    >>> layer_sizes(512, 8)
    (512, 8, 64)
    """
    width, heads = channels(width, "width"), query_heads(heads)
    if width % heads:
        raise ValueError(f"`heads` must divide `width`={width}, got {heads}.")
    return width, heads, width // heads


def embeddings(x: Any, width: int, linear: nn.Linear) -> None:
    """Check shape, dtype and device of a layer's input against the layer's `linear` module."""
    if not isinstance(x, torch.Tensor) or x.ndim != 3 or x.shape[-1] != width:
        got = tuple(x.shape) if isinstance(x, torch.Tensor) else brief(x)
        raise ValueError(f"`x` must be embeddings (batch, token, {width}), got {got}.")
    if not x.is_floating_point():
        raise TypeError(
            f"`x` must be floating point, got {x.dtype}. The order of arguments is `x`, `pos`."
        )
    # Adapters, shards and quantised weights replace linear layers and may accept other inputs
    if type(linear) is not nn.Linear:
        return
    weight = linear.weight
    if x.is_meta and not weight.is_meta:
        raise ValueError(
            f"`x` must be on the device of the layer, {weight.device}, got the meta device, whose"
            " tensors have no values."
        )
    if x.dtype is not weight.dtype and not (x.is_meta or torch.is_autocast_enabled(x.device.type)):
        raise TypeError(
            f"`x` must have the dtype of the layer, {weight.dtype}, got {x.dtype}. Convert `x` or"
            " the layer, or use `torch.autocast`."
        )


def real(value: Any, name: str) -> Any:
    """Check that a value is a real number; NaN and infinity are allowed."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number, got {brief(value)}. Pass a float.")
    return value


def number(value: Any, name: str) -> Any:
    """Check that a value is a finite number, and return it.

    >>> number(0.5, "gain")
    0.5
    """
    real(value, name)
    # This form is also False for NaN; a whole number may be larger than any float
    if not -LARGEST <= value <= LARGEST:
        raise ValueError(f"`{name}` must be a finite number, got {brief(value)}.")
    return value


def positive(value: Any, name: str) -> Any:
    real(value, name)
    if not 0 < value <= LARGEST:
        raise ValueError(f"`{name}` must be a positive number, got {brief(value)}.")
    return value


def probability(value: Any, name: str) -> Any:
    """Check a dropout probability, which must be below 1."""
    # This form also refuses NaN
    if not 0 <= real(value, name) < 1:
        raise ValueError(f"`{name}` must be a probability from 0 to below 1, got {brief(value)}.")
    return value


def switch(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"`{name}` must be True or False, got {brief(value)}.")
    return value


def precision(value: Any) -> str:
    """Check the name of the dtype in which a whole model computes, such as "float32"."""
    if value not in PRECISIONS:
        known = " or ".join(map(repr, PRECISIONS))
        raise ValueError(f"`precision` must be {known}, got {brief(value)}.")
    return value


def room(
    name: str,
    *shape: int,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> tuple[int, ...]:
    """Return a tensor's shape; raise ValueError if the tensor would not fit in memory."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    device = torch.get_default_device() if device is None else torch.device(device)
    needed, most = prod(shape) * dtype.itemsize, memory()
    if needed > most and device.type != "meta":
        raise ValueError(
            f"{name} of shape {shape} needs {needed // 2**30:,} GiB, but the machine has"
            f" {most // 2**30:,} GiB. Pass smaller sizes, or use the meta device."
        )
    return shape


def brief(value: Any) -> str:
    """Format a value for an error message in a few words.

    Objects are shown by class, tensors by shape, and long texts are shortened.
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, str | int | float | None):
        text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "a huge int"
        return text if len(text) <= 60 else f"{text[:57]}…"
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"{'an' if type(value).__name__[0] in 'AEIOUaeiou' else 'a'} {type(value).__name__}"


def memory() -> int:
    """Return the memory of this machine in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        # Windows lacks sysconf
        return ASSUMED_MEMORY
