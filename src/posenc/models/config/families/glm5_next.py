"""GLM 5 next: every fourth layer attends, without RoPE, to keys that an indexer selects."""

from posenc.models.config.layers import FULL, INDEXED, LINEAR, Config, Layer, hybrid

MODELS = "glm5_next_text"


def layers(config: Config) -> list[Layer]:
    usual = config.every(4, INDEXED, LINEAR)
    return hybrid(config, usual, (INDEXED,), renamed={FULL: INDEXED})
