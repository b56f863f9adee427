"""Encoder of T5Gemma 2: Gemma 3 with a bidirectional window."""

from posenc.models.config.layers import SLIDING, Config, Layer, stack

MODELS = "t5gemma2_text"
AHEAD = "sees one more token ahead than behind if the window is even"


def layers(config: Config) -> list[Layer]:
    usual = config.every(config.period("sliding_window_pattern", 6))
    scale, size = config.inverse_root("query_pre_attn_scalar"), config.window()
    windows = {SLIDING: size and (size + 1) // 2}
    return stack(config, usual, scale=scale, windows=windows, unsupported=AHEAD)
