"""AFMoE: every fourth layer sees all and is not rotated."""

from posenc.models.config.layers import FULL, Config, Layer, bare, stack


def layers(config: Config) -> list[Layer]:
    layers = stack(config, config.every(config.period("global_attn_every_n_layers", 4)))
    return bare(layers, lambda i, layer: layer.kind == FULL)
