"""Moonshine: its attention overwrites the heads in the config that both stacks share.

Only the default numbers of heads are read.
"""

from posenc.models.config.layers import Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    config.only("encoder_num_attention_heads", 8)
    config.only("decoder_num_attention_heads", 8)
    return stack(config)
