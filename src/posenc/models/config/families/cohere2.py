"""Command R7B: only sliding layers are rotated; without `sliding_window` no layer is."""

from posenc.models.config.layers import FULL, Config, Layer, drop_encodings, stack


def layers(config: Config) -> list[Layer]:
    layers = stack(config, config.every(config.period("sliding_window_pattern", 4)))
    return without_full_rotations(config, layers)


def without_full_rotations(config: Config, layers: list[Layer]) -> list[Layer]:
    """Remove the rotation of full-attention layers, or of all layers without a window."""
    slides = config.value("sliding_window")
    return drop_encodings(layers, lambda i, layer: not slides or layer.kind == FULL)
