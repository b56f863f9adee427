"""HyperCLOVA X: the config may state the softmax scale as `attention_multiplier`."""

from posenc.models.config.fields import head_dim
from posenc.models.config.layers import Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    scale = config.number("attention_multiplier")
    return stack(config, scale=head_dim(config) ** -0.5 if scale is None else scale)
