"""Jamba: every eighth layer has attention without positional encoding; the others are recurrent."""

from posenc.models.config.layers import FULL, LINEAR, Config, Layer, hybrid


def layers(config: Config) -> list[Layer]:
    steps = config.period("attn_layer_period", 8)
    at = config.count("attn_layer_offset", least=0)
    at = 4 if at is None else at
    if at >= steps:
        config.fail("attn_layer_offset", f"must be less than attn_layer_period ({steps})", at)
    return hybrid(config, config.every(steps, FULL, LINEAR, at))
