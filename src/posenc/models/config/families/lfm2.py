"""LFM2: attention in the layers of `full_attn_idxs` (default: all), otherwise convolutions."""

from posenc.models.config.layers import FULL, Config, Layer, hybrid

MODELS = "lfm2 lfm2_moe"


def layers(config: Config) -> list[Layer]:
    attends = config.counts("full_attn_idxs") if config.family.name == "lfm2" else None
    every = range(config.depth())
    return hybrid(config, [FULL if attends is None or i in attends else "conv" for i in every])
