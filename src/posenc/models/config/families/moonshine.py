"""Moonshine: only the default numbers of heads are supported.

Its attention overwrites the number of heads in the config, which both stacks share.
"""

from posenc.models.config.layers import Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    config.require("encoder_num_attention_heads", 8)
    config.require("decoder_num_attention_heads", 8)
    return stack(config)
