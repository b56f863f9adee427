"""Qwen2 MoE: standard layers; configs with sliding windows are rejected."""

from posenc.models.config.layers import Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    if config.flag("use_sliding_window"):
        why = "the rule by which its class chooses sliding layers is not supported"
        config.refuse("model_type", config.family.name, why)
    return stack(config)
