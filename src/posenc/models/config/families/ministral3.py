"""Ministral 3: queries are scaled up beyond the trained length."""

from dataclasses import replace

from posenc.models.config.fields import Fields
from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import QueryScale

LENGTH = "original_max_position_embeddings"


def layers(config: Config) -> list[Layer]:
    scale = temperature(config)
    return [replace(layer, temperature=scale) for layer in stack(config)]


def temperature(config: Config) -> QueryScale | None:
    stated = config.object("rope_parameters") or config.object("rope_scaling")
    rope = stated or Fields(config.defaults["rope_parameters"], config.file, config.path)
    at_top = config.stated(LENGTH) is not None
    if at_top and stated:
        stated.agree(LENGTH, config, LENGTH)
    steps = config.count(LENGTH) if at_top else rope.count(LENGTH)
    strength = rope.number("llama_4_scaling_beta")
    return QueryScale(steps, strength, start=0) if steps and strength else None
