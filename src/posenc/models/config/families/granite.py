"""Granite: the config states the softmax scale as `attention_multiplier`."""

from posenc.models.config.layers import Config, Layer, stack

MODELS = "granite granite4_vision_text granite_docling_text granitemoe granitemoeshared"


def layers(config: Config) -> list[Layer]:
    return stack(config, scale=config.number("attention_multiplier"))
