"""HyperCLOVA X: the softmax scale is a key of the config."""

from posenc.models.config.fields import head_dim
from posenc.models.config.layers import Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    scale = config.number("attention_multiplier")
    return stack(config, scale=head_dim(config) ** -0.5 if scale is None else scale)
