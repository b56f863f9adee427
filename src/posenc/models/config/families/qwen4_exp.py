"""Qwen4: the axes of Qwen3.5; an indexer chooses keys in every fourth layer."""

from posenc.models.config.families.qwen3_5 import SECTIONS
from posenc.models.config.layers import INDEXED, LINEAR, USUAL, Config, Layer, stack
from posenc.models.config.rope_settings import rotations

MODELS = "qwen4_exp_text"


def layers(config: Config) -> list[Layer]:
    rope = rotations(config, SECTIONS, woven=True)
    usual = config.every(config.period("full_attention_interval", 4), INDEXED, LINEAR)
    return stack(config, config.types(usual, (*USUAL, INDEXED, LINEAR)), rope)
