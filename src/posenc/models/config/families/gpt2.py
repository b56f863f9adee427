"""GPT-2: two config flags change the softmax scale."""

from dataclasses import replace

from posenc.models.config.fields import head_dim
from posenc.models.config.layers import Config, Layer, stack

MODELS = "gpt2 gpt-sw3 gpt_bigcode imagegpt"


def layers(config: Config) -> list[Layer]:
    """Return layers with the softmax scale set by two config flags.

    The scale is 1/√channels, or 1 if `scale_attn_weights` is false. It is divided by the number of
    the layer, from 1 on, if `scale_attn_by_inverse_layer_idx` is true.
    """
    scale = 1.0 if config.flag("scale_attn_weights") is False else None
    layers = stack(config, scale=scale)
    if not config.flag("scale_attn_by_inverse_layer_idx"):
        return layers
    scale = scale or head_dim(config) ** -0.5
    return [replace(layer, scale=scale / (i + 1)) for i, layer in enumerate(layers)]
