"""Gemma 3: every sixth layer sees all, with a base of its own."""

from posenc.models.config.layers import SLIDING, Config, Layer, stack

MODELS = "gemma3_text t5gemma2_decoder"
JOINED = "joins a decoder's own keys and those of the encoder in one softmax"


def layers(config: Config) -> list[Layer]:
    usual = config.every(config.period("sliding_window_pattern", 6))
    scale, size = config.inverse_root("query_pre_attn_scalar"), config.window()
    if config.family.name == "t5gemma2_decoder":
        return stack(config, usual, scale=scale, beyond=JOINED)
    if not config.flag("use_bidirectional_attention"):
        return stack(config, usual, scale=scale)
    windows = {SLIDING: size and size // 2 + 1}
    return stack(config, usual, scale=scale, windows=windows, causal=False)
