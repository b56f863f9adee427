"""UltraBERT: every third layer sees all; the others a window to both sides, its ends included."""

from posenc.models.config.layers import Config, Layer, stack, with_windows


def layers(config: Config) -> list[Layer]:
    size = config.window()
    return with_windows(stack(config, config.types(config.every(3))), size and size + 1)
