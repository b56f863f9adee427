"""Muse: every fourth layer, counted from the last, sees all and is not rotated."""

from posenc.models.config.layers import Config, Layer, bare, stack

MODELS = "muse_glimmer_text muse_spark_text"


def layers(config: Config) -> list[Layer]:
    layers = stack(config, config.every(4, at=0)[::-1])
    each = config.bases("layer_rope_theta")  # 0 for none; all others mean `rope_theta`
    if each is not None:
        return bare(layers, lambda i, layer: not each[i])
    return bare(layers, lambda i, layer: (len(layers) - 1 - i) % 4 == 0)
