"""Moonshine: configs are rejected unless the encoder and the decoder have 8 heads.

Its attention overwrites the number of heads in the config, which both stacks share.
"""

from posenc.models.config.layers import Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    config.require("encoder_num_attention_heads", 8)
    config.require("decoder_num_attention_heads", 8)
    return stack(config)
