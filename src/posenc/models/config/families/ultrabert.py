"""UltraBERT: every third layer sees all; the others a window to both sides, its ends included."""

from posenc.models.config.layers import SLIDING, Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    return stack(config, config.every(3), windows={SLIDING: config.window(ends=1)})
