"""Muse: every fourth layer, counted from the last, has full attention without RoPE."""

from posenc.models.config.layers import Config, Layer, drop_encodings, stack

MODELS = "muse_glimmer_text muse_spark_text"


def layers(config: Config) -> list[Layer]:
    layers = stack(config, config.every(4, at=0)[::-1])
    # 0 means no rotation; any other number means `rope_theta`
    each = config.bases("layer_rope_theta")
    if each is not None:
        return drop_encodings(layers, lambda i, layer: not each[i])
    return drop_encodings(layers, lambda i, layer: (len(layers) - 1 - i) % 4 == 0)
