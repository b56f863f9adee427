"""Qwen2 MoE: with windows, layers below `max_window_layers` take turns."""

from posenc.models.config.layers import Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    if config.flag("use_sliding_window"):
        why = "which of its layers slide follows a rule that only this class has"
        config.refuse("model_type", config.family.name, why)
    return stack(config)
