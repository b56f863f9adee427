"""Gemma 3: full attention with its own RoPE base in every sixth layer; the others have a window."""

from posenc.models.config.layers import SLIDING, Config, Layer, stack

MODELS = "gemma3_text t5gemma2_decoder"


def layers(config: Config) -> list[Layer]:
    usual = config.every(config.period("sliding_window_pattern", 6))
    scale, size = config.inverse_root("query_pre_attn_scalar"), config.window()
    if config.family.name != "gemma3_text" or not config.flag("use_bidirectional_attention"):
        return stack(config, usual, scale=scale)
    windows = {SLIDING: size and size // 2 + 1}
    return stack(config, usual, scale=scale, windows=windows, causal=False)
