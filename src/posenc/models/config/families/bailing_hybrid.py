"""Ling hybrid: every sixth layer has latent attention (MLA); the others have linear attention."""

from posenc.models.config.families.deepseek_v3 import FACTS as FACTS
from posenc.models.config.layers import FULL, LINEAR, Config, Layer, hybrid


def layers(config: Config) -> list[Layer]:
    return hybrid(config, config.every(config.period("layer_group_size", 6), FULL, LINEAR))
