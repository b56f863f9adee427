"""Write the encodings of a model to its config as JSON, and create them again from this JSON.

    "posenc": {"layers": [0, 0, 1], "encodings": [{"class": "T5Bias", "plain": {…}, …}, …]}

A description has the class and the attributes of an encoding: constants with all their numbers,
parameters with their shape, since their values are among the model's weights. Only classes of
posenc are rebuilt; no code that a file names is imported or run.
"""

import re
from collections.abc import Sequence
from math import isfinite, prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import posenc.catalog  # noqa: F401  defines all encodings
from posenc.core.encoding import Encoding
from posenc.encodings import temperature  # noqa: F401  defines an encoding outside the catalogue
from posenc.models.config.parse import ENTRY
from posenc.models.files.errors import ModelError

MOST_NUMBERS = 2**16  # numbers in a constant
# Modules of torch that an encoding may contain
LAYERS = {"Linear": nn.Linear, "ModuleList": nn.ModuleList}
OF_EVERY_MODULE = frozenset(vars(nn.Module()))  # attributes that every module has
DTYPE = re.compile(r"(float|bfloat|int|uint)\d+|bool")


class Unwritable(ValueError):
    """Raised for an encoding that a config cannot describe."""


def described(encodings: Sequence[Any]) -> dict[str, Any]:
    """Return a config entry that describes the encodings of all layers, or states why it cannot."""
    unique = [*{id(encoding): encoding for encoding in encodings}.values()]
    layers = [
        next(n for n, known in enumerate(unique) if known is encoding) for encoding in encodings
    ]
    try:
        return {"layers": layers, "encodings": [_described(encoding) for encoding in unique]}
    except Unwritable as reason:
        return {"layers": layers, "refused": str(reason)}


def restored(entry: Any, file: Path) -> list[Encoding]:
    """Rebuild each layer's encoding from a config entry, with parameters on the meta device.

    Raises ModelError if the entry is malformed or describes other modules than encodings.
    """
    try:
        unique = [_restored(description) for description in entry["encodings"]]
        encodings: list[Any] = [unique[n] for n in entry["layers"]]
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, RuntimeError) as error:
        raise ModelError(file, ENTRY, f"must describe encodings of posenc ({error})") from None
    if not all(isinstance(encoding, Encoding) for encoding in encodings):
        raise ModelError(file, ENTRY, "must describe encodings only")
    return encodings


def _described(module: Any) -> dict[str, Any]:
    name = type(module).__name__
    if _classes().get(name) is not type(module):
        what = "is not a class of posenc" if isinstance(module, nn.Module) else "is not an encoding"
        raise Unwritable(f"{name} {what}")
    plain = {key: value for key, value in vars(module).items() if key not in OF_EVERY_MODULE}
    try:
        return {
            "class": name,
            "plain": {key: _plain(value) for key, value in plain.items()},
            "learned": [[key, _learned(value)] for key, value in module._parameters.items()],
            "parts": [[key, _described(part)] for key, part in module._modules.items()],
        }
    except TypeError as reason:
        raise Unwritable(f"{name} contains {reason}") from None


def _restored(entry: dict[str, Any]) -> nn.Module:
    module = _classes()[entry["class"]].__new__(_classes()[entry["class"]])
    nn.Module.__init__(module)
    for key, value in entry["plain"].items():
        setattr(module, _attribute(key), _value(value))
    # A list of pairs, since a config is written in the order of its keys
    for key, value in entry["learned"]:
        module.register_parameter(_attribute(key), _empty(value))
    for key, part in entry["parts"]:
        module.add_module(key, _restored(part))
    return module


def _classes() -> dict[str, type[nn.Module]]:
    own_classes = [
        subclass
        for subclass in Encoding.__subclasses__()
        if subclass.__module__.startswith("posenc.")
    ]
    return {kind.__name__: kind for kind in (*own_classes, *LAYERS.values())}


def _attribute(name: str) -> str:
    if name in OF_EVERY_MODULE or not name.isidentifier() or name.startswith("__"):
        raise ValueError(f"{name!r} must be a valid attribute name of an encoding")
    return name


def _plain(value: Any) -> Any:
    """Convert an attribute's value to JSON; `_value` restores it.

    A tuple becomes a JSON array. A list, a tensor and an infinite number become JSON objects.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else {"float": str(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, list):
        return {"list": [_plain(item) for item in value]}
    if isinstance(value, Tensor) and value.numel() <= MOST_NUMBERS and not value.is_complex():
        numbers = [_plain(number) for number in value.detach().flatten().tolist()]
        return {"tensor": numbers, **_kind(value)}
    raise TypeError(f"a {type(value).__name__}")


def _value(entry: Any) -> Any:
    if isinstance(entry, list):
        return tuple(map(_value, entry))
    if not isinstance(entry, dict):
        return entry
    if "float" in entry:
        return float(entry["float"])
    if "list" in entry:
        return [*map(_value, entry["list"])]
    numbers = [*map(_value, entry["tensor"])]
    return torch.tensor(numbers, dtype=_dtype(entry), device="cpu").view(entry["shape"])


def _learned(parameter: Tensor | None) -> Any:
    return None if parameter is None else {**_kind(parameter), "trains": parameter.requires_grad}


def _empty(entry: Any) -> nn.Parameter | None:
    """Return an untrained parameter on the meta device.

    No memory is allocated, whatever size an untrusted file states.
    """
    if entry is None:
        return None
    if prod(entry["shape"]) > 2**40:
        raise ValueError("a parameter must have at most 2^40 numbers")
    empty = torch.empty(entry["shape"], dtype=_dtype(entry), device="meta")
    return nn.Parameter(empty, bool(entry["trains"]))


def _kind(x: Tensor) -> dict[str, Any]:
    return {"shape": [*x.shape], "numbers": str(x.dtype).removeprefix("torch.")}


def _dtype(entry: dict[str, Any]) -> torch.dtype:
    name = entry["numbers"]
    if not DTYPE.fullmatch(name):
        raise ValueError(f"{name!r} must be a dtype")
    return getattr(torch, name)
