"""AFMoE: every fourth layer sees all and is not rotated."""

from posenc.models.config.layers import FULL, Config, Layer, bare, stack


def layers(config: Config) -> list[Layer]:
    kinds = config.types(config.every(config.period("global_attn_every_n_layers", 4)))
    return bare(stack(config, kinds), lambda i, layer: layer.kind == FULL)
