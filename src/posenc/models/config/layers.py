"""Functions, shared by the families of models, that build the layers of a stack.

A family's `layers(config)` returns one `Layer` for each layer of the model. For models without a
file in `families`, `stack` does.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from posenc.models.config.fields import FULL, SLIDING, Config
from posenc.models.config.fields import INDEXED as INDEXED
from posenc.models.config.fields import LINEAR as LINEAR
from posenc.models.config.fields import USUAL as USUAL
from posenc.models.config.fields import Fields as Fields
from posenc.models.config.rope_settings import rotations
from posenc.models.config.spec import IDLE, Layer

Encode = Callable[[str], Any]  # type of layer → its encoding


def stack(
    config: Config,
    usual: Sequence[str] | None = None,
    known: Collection[str] = USUAL,
    encode: Encode | None = None,
    windows: Mapping[str, int | None] | None = None,
    renamed: Mapping[str, str] | None = None,
    trimmed: bool = False,
    **more: Any,
) -> list[Layer]:
    """Return the layers of a stack, with the types in the config's `layer_types`.

    usual: the type of each layer if the file lists none; by default those of Qwen2's rule
    known, renamed, trimmed: see `Config.types`
    encode: returns the encoding of a type; by default its rotation, or None if the family is not
        rotary
    windows: the window of each type that has one; by default that of `sliding_attention`
    more: further fields of each `Layer`, such as `scale`
    """
    if encode is None:
        encode = rotations(config) if config.family.kind == "rotary" else no_encoding
    if usual is None and config.stated("layer_types") is None:
        kinds = config.by_depth()
        # A class without types of layers has one window for all layers
        alike = windows is None and not config.value("max_window_layers")
    else:
        kinds, alike = config.types(usual or (), known, renamed, trimmed), False
    if windows is None:
        sliding = {*kinds} if alike else {*kinds} & {SLIDING}
        windows = dict.fromkeys(sliding, config.window() if sliding else None)
    more = {"unsupported": config.family.unsupported, **more}
    return [Layer(encode(kind), kind, window=windows.get(kind), **more) for kind in kinds]


def hybrid(
    config: Config,
    usual: Sequence[str],
    attending: Collection[str] = (FULL,),
    idle: Collection[str] = IDLE,
    **more: Any,
) -> list[Layer]:
    """Return the layers of a hybrid model; only types in `attending` have attention."""
    layers = stack(config, usual, (*attending, *idle), **more)
    return [
        layer if layer.kind in attending else Layer(kind=layer.kind, attends=False)
        for layer in layers
    ]


def no_encoding(kind: str) -> None:
    """Return None: `stack(…, encode=no_encoding)` builds layers without positional encoding."""


def drop_encodings(layers: Sequence[Layer], without: Callable[[int, Layer], Any]) -> list[Layer]:
    """Remove the encoding of each layer for which `without(index, layer)` is true."""
    return [
        replace(layer, encoding=None) if without(i, layer) else layer
        for i, layer in enumerate(layers)
    ]
