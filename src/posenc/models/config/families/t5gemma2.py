"""The encoder of T5Gemma 2: as Gemma 3, with a window to both sides."""

from posenc.models.config.layers import Config, Layer, stack, with_windows

MODELS = "t5gemma2_text"
AHEAD = "sees a token further ahead than back, where a window is even"


def layers(config: Config) -> list[Layer]:
    kinds = config.types(config.every(config.period("sliding_window_pattern", 6)))
    layers = stack(config, kinds, scale=config.inverse_root("query_pre_attn_scalar"), beyond=AHEAD)
    size = config.window()
    return with_windows(layers, size and (size + 1) // 2)
