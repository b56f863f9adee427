"""UltraBERT: every third layer has full attention; the others, a window on each side of a query."""

from posenc.models.config.layers import SLIDING, Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    return stack(config, config.every(3), windows={SLIDING: config.window(ends=1)})
