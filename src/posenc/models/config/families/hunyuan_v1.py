"""Hunyuan: "dynamic" scaling may raise the base for texts of any length, by a factor `alpha`."""

from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.rope_settings import rotations

MODELS = "hunyuan_v1_dense hunyuan_v1_moe"
AFTER = "normalizes queries and keys after they were turned"


def layers(config: Config) -> list[Layer]:
    return stack(config, encode=rotations(config, alpha=True), beyond=AFTER)
