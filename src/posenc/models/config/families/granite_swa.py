"""Granite with attention sinks, a RoPE base per layer, and sliding windows in 3 of 4 layers."""

from dataclasses import replace

from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import Rotary

MODELS = "granite_swa granitemoe_swa"


def layers(config: Config) -> list[Layer]:
    scale, each = config.number("attention_multiplier"), config.bases("layer_rope_theta")
    layers = stack(config, config.every(4, at=0), scale=scale, sinks=True)
    if each is None:
        return layers
    return [_with_base(layer, base) for layer, base in zip(layers, each, strict=True)]


def _with_base(layer: Layer, base: float) -> Layer:
    turn = layer.encoding
    return replace(
        layer, encoding=replace(turn, base=base) if base and isinstance(turn, Rotary) else None
    )
