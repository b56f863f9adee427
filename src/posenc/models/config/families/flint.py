"""Flint: as Command R7B, with learned sinks; the first and the last layer see all."""

from posenc.models.config.families.cohere2 import without_far_rotations
from posenc.models.config.layers import FULL, Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    kinds = config.every(4, at=1)
    kinds = config.types([FULL, *kinds[1:-1], FULL][: len(kinds)])
    return without_far_rotations(config, stack(config, kinds, sinks=True))
