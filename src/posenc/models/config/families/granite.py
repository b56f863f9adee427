"""Granite: the softmax scale is a key of the config."""

from posenc.models.config.layers import Config, Layer, stack

MODELS = "granite granite4_vision_text granite_docling_text granitemoe granitemoeshared"


def layers(config: Config) -> list[Layer]:
    return stack(config, scale=config.number("attention_multiplier"))
