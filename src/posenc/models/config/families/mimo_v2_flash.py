"""MiMo-V2-Flash: sliding windows and sinks; the first and every sixth layer have neither."""

from dataclasses import replace
from typing import Any

from posenc.models.config.layers import FULL, SLIDING, Config, Layer, stack


def standard_keys(config: Config) -> dict[str, Any]:
    """Return the config's values without the keys that the transformers class hard-codes."""
    return config.without_constants(
        rope_theta=5e6,
        swa_rope_theta=1e4,
        partial_rotary_factor=0.334,
        swa_head_dim=192,
        add_swa_attention_sink_bias=True,
        add_full_attention_sink_bias=False,
    )


def layers(config: Config) -> list[Layer]:
    usual = [FULL, *config.every(6)[1:]]
    if (flags := config.flags("hybrid_layer_pattern")) is not None:
        usual = [FULL if flag == 0 else SLIDING for flag in flags]
    size = config.window("sliding_window_size", ends=1) or config.window()
    layers = stack(config, usual, windows={SLIDING: size})
    return [replace(layer, sinks=layer.kind == SLIDING) for layer in layers]
