"""Build the layers of a stack: functions that the families of models share.

A family's `layers(config)` returns one `Layer` for each layer of the model. `stack` reads all
models without a file of their own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from posenc.models.config.fields import FULL, SLIDING, Config
from posenc.models.config.fields import INDEXED as INDEXED
from posenc.models.config.fields import LINEAR as LINEAR
from posenc.models.config.fields import USUAL as USUAL
from posenc.models.config.rope_settings import rotations
from posenc.models.config.spec import IDLE, Layer

Encode = Callable[[str], Any]  # type of layer → its encoding


def stack(
    config: Config, kinds: Sequence[str] | None = None, encode: Encode | None = None, **more: Any
) -> list[Layer]:
    """Return layers of these types with one encoding each; `sliding_attention` has a window.

    kinds: the type of each layer; by default those of `layer_types`, or else Qwen2's
    encode: the encoding of each type; by default the rotation, or none if the family is not rotary
    more: further fields of each `Layer`, such as `scale`
    """
    if encode is None:
        encode = rotations(config) if config.family.kind == "rotary" else no_encoding
    # A class without types of layers has one window for all
    untyped = kinds is None and config.stated("layer_types") is None
    alike = untyped and not config.value("max_window_layers")
    if kinds is None:
        kinds = config.by_depth() if untyped else config.types(())
    windows = {kind: config.window() if alike or kind == SLIDING else None for kind in kinds}
    return [Layer(encode(kind), kind, window=windows[kind], **more) for kind in kinds]


def hybrid(
    config: Config,
    usual: Sequence[str],
    attending: Collection[str] = (FULL,),
    idle: Collection[str] = IDLE,
    renamed: Mapping[str, str] | None = None,
    **more: Any,
) -> list[Layer]:
    """Return layers of which only some attend: convolutions and recurrences do not."""
    kinds = config.types(usual, (*attending, *idle), renamed)
    layers = stack(config, kinds, **more)
    return [
        layer if layer.kind in attending else Layer(kind=layer.kind, attends=False)
        for layer in layers
    ]


def no_encoding(kind: str) -> None:
    """Return no encoding, for a layer of any type."""


def with_windows(layers: Sequence[Layer], size: int | None, *kinds: str) -> list[Layer]:
    """Set the window of layers of these types, by default of the sliding ones."""
    kinds = kinds or (SLIDING,)
    return [replace(layer, window=size) if layer.kind in kinds else layer for layer in layers]


def bare(layers: Sequence[Layer], without: Callable[[int, Layer], Any]) -> list[Layer]:
    """Take the encoding from the layers for which `without(index, layer)` is true."""
    return [
        replace(layer, encoding=None) if without(i, layer) else layer
        for i, layer in enumerate(layers)
    ]
