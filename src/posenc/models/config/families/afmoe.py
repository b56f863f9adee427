"""AFMoE: every fourth layer has full attention without RoPE; the others have a sliding window."""

from posenc.models.config.layers import FULL, Config, Layer, drop_encodings, stack


def layers(config: Config) -> list[Layer]:
    layers = stack(config, config.every(config.period("global_attn_every_n_layers", 4)))
    return drop_encodings(layers, lambda i, layer: layer.kind == FULL)
