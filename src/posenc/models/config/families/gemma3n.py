"""Gemma 3n: every fifth layer has full attention with its own RoPE base; softmax scale 1."""

from posenc.models.config.layers import Config, Layer, stack

MODELS = "gemma3n_text"


def layers(config: Config) -> list[Layer]:
    return stack(config, config.every(5), scale=1.0)
