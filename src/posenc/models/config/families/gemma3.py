"""Gemma 3: every sixth layer sees all, with a base of its own."""

from dataclasses import replace

from posenc.models.config.layers import Config, Layer, stack, with_windows

MODELS = "gemma3_text t5gemma2_decoder"
JOINED = "joins a decoder's own keys and those of the encoder in one softmax"


def layers(config: Config) -> list[Layer]:
    kinds = config.types(config.every(config.period("sliding_window_pattern", 6)))
    decoder = config.family.name == "t5gemma2_decoder"
    scale = config.inverse_root("query_pre_attn_scalar")
    layers = stack(config, kinds, scale=scale, beyond=JOINED if decoder else "")
    if decoder or not config.flag("use_bidirectional_attention"):
        return layers
    size = config.window()
    return [replace(layer, causal=False) for layer in with_windows(layers, size and size // 2 + 1)]
