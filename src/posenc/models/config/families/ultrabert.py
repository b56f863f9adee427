"""UltraBERT: every third layer has full attention; the others have a bidirectional window."""

from posenc.models.config.layers import SLIDING, Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    return stack(config, config.every(3), windows={SLIDING: config.window(ends=1)})
