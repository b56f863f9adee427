"""MiMo-V2-Flash: the first layer and every sixth see all; the others slide, with sinks."""

from dataclasses import replace
from typing import Any

from posenc.models.config.layers import FULL, SLIDING, Config, Layer, stack, with_windows


def usual(config: Config) -> dict[str, Any]:
    """The class sets what its makers' file states in keys of its own."""
    return config.without(
        rope_theta=5e6,
        swa_rope_theta=1e4,
        partial_rotary_factor=0.334,
        swa_head_dim=192,
        add_swa_attention_sink_bias=True,
        add_full_attention_sink_bias=False,
    )


def layers(config: Config) -> list[Layer]:
    listed = config.flags("hybrid_layer_pattern")
    if listed is not None:
        kinds = [FULL if flag == 0 else SLIDING for flag in listed]
    else:
        kinds = [FULL, *config.every(6)[1:]]
    size = config.window("sliding_window_size")
    size = size + 1 if size else config.window()
    layers = with_windows(stack(config, config.types(kinds)), size)
    return [replace(layer, sinks=layer.kind == SLIDING) for layer in layers]
