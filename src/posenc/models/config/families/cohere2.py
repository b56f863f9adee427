"""Command R7B: full layers are not rotated; without a sliding window none is."""

from posenc.models.config.layers import FULL, Config, Layer, bare, stack


def layers(config: Config) -> list[Layer]:
    layers = stack(config, config.every(config.period("sliding_window_pattern", 4)))
    return without_far_rotations(config, layers)


def without_far_rotations(config: Config, layers: list[Layer]) -> list[Layer]:
    slides = config.value("sliding_window")
    return bare(layers, lambda i, layer: not slides or layer.kind == FULL)
