"""Checks of single arguments: each returns the argument, or says in a sentence what is wrong."""

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
ASSUMED_MEMORY = 2**36  # bytes of memory, 64 GiB, where the system does not say


def whole_number(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"`{name}` must be a whole number, got {brief(value)}: pass an int.")
    return int(value)


def count(value: Any, name: str, least: int = 1, most: int | None = None) -> int:
    """Check that it is a whole number from `least` to `most`, and return it.

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
    """Check a number of channels that form pairs."""
    if whole_number(value, name) < 2 or value % 2:
        raise ValueError(
            f"channels turn in pairs: `{name}` must be even and at least 2, got {value}."
        )
    return channels(value, name)


def query_heads(value: Any) -> int:
    return count(value, "heads", most=2**20)


def layer_sizes(width: Any, heads: Any) -> tuple[int, int, int]:
    """The channels that a layer reads, its query heads, and the channels of each.

    >>> layer_sizes(512, 8)
    (512, 8, 64)
    """
    width, heads = channels(width, "width"), query_heads(heads)
    if width % heads:
        raise ValueError(f"`heads` must divide `width`={width}, got {heads}: so do those of q.")
    return width, heads, width // heads


def embeddings(x: Any, width: int, linear: nn.Linear) -> None:
    """Check the input of a layer, which `linear` reads."""
    if not isinstance(x, torch.Tensor) or x.ndim != 3 or x.shape[-1] != width:
        got = tuple(x.shape) if isinstance(x, torch.Tensor) else brief(x)
        raise ValueError(f"`x` must be embeddings (batch, token, {width}), got {got}.")
    if not x.is_floating_point():
        raise TypeError(f"`x` must be embeddings, real numbers, got {x.dtype}: `pos` is second.")
    # Adapters, shards and quantised weights stand in for linear layers, and take what they take
    if type(linear) is not nn.Linear:
        return
    weight = linear.weight
    if x.is_meta and not weight.is_meta:
        raise ValueError(f"`x` is on meta and has no values, the layer is on {weight.device}.")
    if x.dtype is not weight.dtype and not (x.is_meta or torch.is_autocast_enabled(x.device.type)):
        raise TypeError(
            f"`x` must be of the dtype of the layer, {weight.dtype}, got {x.dtype}: convert it, or"
            " the layer, or call it under `torch.autocast`."
        )


def real(value: Any, name: str) -> Any:
    """Check that it is a number; NaN and infinity are."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"`{name}` must be a number, got {brief(value)}: pass a float.")
    return value


def number(value: Any, name: str) -> Any:
    """Check that it is a finite number, and return it.

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
    """Check a probability of leaving something out; 1 would leave out all."""
    # This form also refuses NaN
    if not 0 <= real(value, name) < 1:
        raise ValueError(
            f"`{name}` is the probability with which a number becomes 0, got {brief(value)}: pass"
            " one from 0 to below 1."
        )
    return value


def switch(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"`{name}` must be True or False, got {brief(value)}.")
    return value


def precision(value: Any) -> str:
    """The name of a dtype that a whole model can compute in."""
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
    """Return the shape of a table about to be allocated, or refuse it for lack of memory."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    device = torch.get_default_device() if device is None else torch.device(device)
    needed, most = prod(shape) * dtype.itemsize, memory()
    if needed > most and device.type != "meta":
        raise ValueError(
            f"{name} of shape {shape} would take {needed // 2**30:,} GiB, there are"
            f" {most // 2**30:,}: make it smaller, or make it on the meta device."
        )
    return shape


def brief(value: Any) -> str:
    """Write a value as messages show it: short; of an object or a long value, its class or size."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, str | int | float | None):
        text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "a huge int"
        return text if len(text) <= 60 else f"{text[:57]}…"
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"{'an' if type(value).__name__[0] in 'AEIOUaeiou' else 'a'} {type(value).__name__}"


def memory() -> int:
    """Bytes that this machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        # Windows has no such call
        return ASSUMED_MEMORY
