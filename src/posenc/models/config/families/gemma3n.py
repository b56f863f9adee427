"""Gemma 3n: every fifth layer sees all, with a base of its own; scores are not scaled."""

from posenc.models.config.layers import Config, Layer, stack

MODELS = "gemma3n_text"


def layers(config: Config) -> list[Layer]:
    return stack(config, config.every(5), scale=1.0)
