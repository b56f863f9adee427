"""Flint: Command R7B with learned attention sinks; full attention in the first and last layer."""

from posenc.models.config.families.cohere2 import without_full_rotations
from posenc.models.config.layers import FULL, Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    usual = config.every(4, at=1)
    usual = [FULL, *usual[1:-1], FULL][: len(usual)]
    return without_full_rotations(config, stack(config, usual, sinks=True))
