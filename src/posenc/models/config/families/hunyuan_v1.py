"""Hunyuan: "dynamic" scaling with `alpha`, which raises the RoPE base even for short texts."""

from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.rope_settings import rotations

MODELS = "hunyuan_v1_dense hunyuan_v1_moe"


def layers(config: Config) -> list[Layer]:
    return stack(config, encode=rotations(config, alpha=True))
