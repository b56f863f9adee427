"""Moonshine: its attention writes the heads of one stack into the config that both share."""

from posenc.models.config.layers import Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    config.only("encoder_num_attention_heads", 8)
    config.only("decoder_num_attention_heads", 8)
    return stack(config)
