"""Molmo 2: RoPE scaling applies to the layers of `rope_scaling_layers`, by default to all."""

from dataclasses import replace

from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import Rotary

MODELS = "molmo2_text"


def layers(config: Config) -> list[Layer]:
    layers, scaled = stack(config), config.counts("rope_scaling_layers")
    every = [layer.encoding for layer in layers]
    return [
        replace(layer, encoding=_unscaled(turn))
        if isinstance(turn, Rotary) and scaled is not None and i not in scaled
        else layer
        for i, (layer, turn) in enumerate(zip(layers, every, strict=True))
    ]


def _unscaled(turn: Rotary) -> Rotary:
    return replace(turn, method="default", factor=1.0, trained=0, ends=(0, 0), gain=1.0)
