"""Qwen3-Next: every fourth layer has attention; the others are recurrent."""

from posenc.models.config.layers import FULL, LINEAR, Config, Encode, Layer, hybrid

MODELS = "qwen3_next olmo_hybrid"


def layers(config: Config, encode: Encode | None = None) -> list[Layer]:
    fixed = config.family.name == "olmo_hybrid"
    steps = 4 if fixed else config.period("full_attention_interval", 4)
    return hybrid(config, config.every(steps, FULL, LINEAR), encode=encode)
