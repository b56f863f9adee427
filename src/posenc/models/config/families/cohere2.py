"""Command R7B: RoPE in sliding-window layers only; no RoPE if `sliding_window` is missing."""

from posenc.models.config.layers import FULL, Config, Layer, drop_encodings, stack


def layers(config: Config) -> list[Layer]:
    layers = stack(config, config.every(config.period("sliding_window_pattern", 4)))
    return without_full_rotations(config, layers)


def without_full_rotations(config: Config, layers: list[Layer]) -> list[Layer]:
    """Remove RoPE from full-attention layers, or from all if the config has no `sliding_window`."""
    slides = config.value("sliding_window")
    return drop_encodings(layers, lambda i, layer: not slides or layer.kind == FULL)
