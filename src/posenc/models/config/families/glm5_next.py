"""GLM 5 next: every fourth layer attends, without encoding, to keys chosen by an indexer."""

from posenc.models.config.layers import FULL, INDEXED, LINEAR, Config, Layer, hybrid

MODELS = "glm5_next_text"


def layers(config: Config) -> list[Layer]:
    usual = config.every(4, INDEXED, LINEAR)
    return hybrid(config, usual, (INDEXED,), renamed={FULL: INDEXED})
