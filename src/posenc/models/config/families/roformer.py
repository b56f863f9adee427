"""RoFormer: RoPE with base 10,000; configs with `rotary_value`, which rotates v, are rejected."""

from posenc.models.config.layers import Config, Layer, stack

FACTS = {
    "layout": "interleaved",
    "defaults": {"rope_theta": 10_000.0},
    "ignored": ["rope_theta", "partial_rotary_factor", "rope_scaling"],
}


def layers(config: Config) -> list[Layer]:
    if config.flag("rotary_value"):
        config.refuse("model_type", config.family.name, "`rotary_value` also rotates the values v")
    return stack(config)
