"""Cache values that follow from positions and weights alone with the positions: layers share them.

A value lives as long as the object that carries it, a prepared tensor of positions or a mask, or an
encoding whose table of offsets serves every text; nothing is cached anywhere else. It is computed
again as soon as a tensor that it was computed from has been written to: autograd counts versions.
Tensors that can be trained are also compared by their numbers, for optimisers that write past
autograd, through `.data`.
"""

from collections.abc import Callable
from ctypes import c_char
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, equal, is_grad_enabled, is_inference_mode_enabled, nn

from posenc.core.tracing import beyond_gradients, readable, traced

T = TypeVar("T")
is_autocast_cpu = partial(torch.is_autocast_enabled, "cpu")
MOST_ENTRIES = 512  # values cached with one object: a few for each layer of a model
COMPARED_WHOLE = 4096  # numbers: tensors up to this size are compared whole
SAMPLES = 64  # numbers, evenly spread, by which larger tensors are compared

# Attributes that every module has, which say nothing about an encoding
OF_EVERY_MODULE = frozenset({*vars(nn.Module()), "_positions", "_cached"})


class CachedValues(dict):
    """The cache of one object; copies and pickles of the object leave it behind."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return dict, ()

    def __deepcopy__(self, memo: Any) -> "CachedValues":
        return CachedValues()


def cached_with(on: Any, what: Any, made_of: tuple[Any, ...], make: Callable[[], T]) -> T:
    """Call `make`, or return its value cached with `on` while tensors in `made_of` are unchanged.

    `what` tells apart the values cached with one object; `make` must read nothing else that
    changes: `on` itself is among `made_of`, unless the value has nothing to do with it. Values that
    gradients flow through are never cached.
    """
    if traced():
        return make()
    graded = is_grad_enabled()
    key = (what, graded, is_inference_mode_enabled(), is_autocast_cpu(), *map(id, made_of))
    carried = on.__dict__.get("_cached")
    entry = None if carried is None else carried.get(key)
    if entry is not None and unchanged(entry[1]):
        return entry[2]
    tensors = [x for x in made_of if isinstance(x, Tensor)]
    learns = graded and any([x.requires_grad for x in tensors])
    if learns or not readable(*tensors) or beyond_gradients():
        return make()
    versions = [version_of(x) for x in tensors]
    value = make()
    if None not in versions:
        if carried is None:
            carried = on.__dict__["_cached"] = CachedValues()
        if len(carried) >= MOST_ENTRIES:
            carried.pop(next(iter(carried)), None)
        held = [x for x in made_of if x is not on]  # which keeps their `id`s taken
        carried[key] = held, versions, value, len(held) < len(made_of)
    return value


def carry(before: Any, after: Any) -> None:
    """Hand on what was cached with `before` and follows from weights alone.

    `after` takes its place, as positions that have grown by a token do in a cache of keys.
    """
    values = getattr(before, "__dict__", {}).get("_cached")
    if values:
        kept_on = {key: entry for key, entry in values.items() if not entry[3]}
        if kept_on:
            after.__dict__.setdefault("_cached", CachedValues()).update(kept_on)


class Version(NamedTuple):
    """A sign that a tensor has been written to since."""

    x: Tensor
    version: int | None  # as autograd counts
    place: int  # in memory: optimisers may put other data in place of the old
    holds: Callable[[], bool] | None  # whether it has the numbers that it had; None: not asked


def version_of(x: Tensor) -> Version | None:
    """The `Version` of `x`, which differs once `x` is written to; None where nothing shows it."""
    if not x.is_inference():
        holds = _unchanged_numbers(x) if x.requires_grad else None
        return Version(x, x._version, x.data_ptr(), holds)
    if x.numel() > COMPARED_WHOLE:
        return None
    return Version(x, None, x.data_ptr(), _unchanged_numbers(x))


def unchanged(versions: list[Version]) -> bool:
    for x, version, place, holds in versions:
        if version is not None and x._version != version:
            return False
        if holds is not None and not (x.data_ptr() == place and holds()):
            return False
    return True


def _unchanged_numbers(x: Tensor) -> Callable[[], bool]:
    """Make a function that compares `x` with what it is now, as long as it stays in its place.

    All of it byte by byte, in one call; or samples of many numbers, of which a step of an optimiser
    changes nearly all.
    """
    x = x.detach()
    if x.is_cpu and x.is_contiguous() and x.numel() <= COMPARED_WHOLE:
        memory = (c_char * x.nbytes).from_address(x.data_ptr())
        before = memory.raw
        return lambda: memory.raw == before
    many = x.is_contiguous() and x.numel() > COMPARED_WHOLE
    part = x.view(-1)[:: x.numel() // SAMPLES] if many else x
    return partial(equal, part, part.clone())
