"""Encoder of T5Gemma 2: Gemma 3 with a bidirectional window."""

from posenc.models.config.layers import SLIDING, Config, Layer, stack

MODELS = "t5gemma2_text"


def layers(config: Config) -> list[Layer]:
    usual = config.every(config.period("sliding_window_pattern", 6))
    scale, size = config.inverse_root("query_pre_attn_scalar"), config.window()
    return stack(config, usual, scale=scale, windows={SLIDING: size and (size + 1) // 2})
