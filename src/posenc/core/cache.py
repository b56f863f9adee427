"""What follows from positions and weights alone, kept with the positions, so that layers share it.

It lives as long as the object that carries it, a prepared tensor of positions or a mask; nothing
is kept anywhere else. It is worked out anew as soon as something that it was made of has been
written to, which autograd counts; what can be trained is also compared by its numbers, for
optimisers that write past autograd, through `.data`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from posenc.core.tracing import beyond_gradients, readable

T = TypeVar("T")
MOST = 64  # things kept with one object: one for each layer of a model
COMPARED = 4096  # numbers of a tensor; of a larger one SPREAD of them, all over it
SPREAD = 64


class Kept(dict):
    """Copies and pickles of an object leave behind what was kept with it."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return dict, ()

    def __deepcopy__(self, memo: Any) -> "Kept":
        return Kept()


def kept(on: Any, what: Any, made_of: tuple[Any, ...], make: Callable[[], T]) -> T:
    """What `make` makes, or has made when tensors in `made_of` held what they hold now.

    `what` tells apart what is kept with the same object; `make` must read nothing else that
    changes. Values that gradients flow through are never kept.
    """
    if torch.compiler.is_compiling():
        return make()
    graded = torch.is_grad_enabled()
    modes = graded, torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
    key = (what, modes, *map(id, made_of))
    carried = on.__dict__.get("_kept")
    entry = None if carried is None else carried.get(key)
    if entry is not None and _unchanged(entry[1]):
        return entry[2]
    tensors = [x for x in made_of if isinstance(x, Tensor)]
    learns = graded and any([x.requires_grad for x in tensors])
    if learns or not readable(*tensors) or beyond_gradients():
        return make()
    marks = [_mark(x) for x in tensors]
    value = make()
    if None not in marks:
        if carried is None:
            carried = on.__dict__["_kept"] = Kept()
        if len(carried) >= MOST:
            carried.pop(next(iter(carried)), None)
        carried[key] = made_of, marks, value  # and so no other object can have the same `id`
    return value


Mark = tuple[Tensor, int | None, Tensor | None]  # a tensor, its version, and numbers of it


def _mark(x: Tensor) -> Mark | None:
    """What would be different, had `x` been written to; None where nothing would."""
    if not x.is_inference():
        return x, x._version, _some(x).clone() if x.requires_grad else None
    return (x, None, x.clone()) if x.numel() <= COMPARED else None


def _unchanged(marks: list[Mark]) -> bool:
    for x, version, numbers in marks:
        if version is not None and x._version != version:
            return False
        if numbers is not None and not torch.equal(_some(x), numbers):
            return False
    return True


def _some(x: Tensor) -> Tensor:
    """All of its numbers; of a large one some, for a step of an optimiser changes nearly all."""
    x = x.detach()
    return x if x.numel() <= COMPARED else x.reshape(-1)[:: x.numel() // SPREAD]
