"""MiniMax: every second layer attends, within a window if the file has one."""

from posenc.models.config.layers import FULL, LINEAR, Config, Layer, hybrid, with_windows


def layers(config: Config) -> list[Layer]:
    layers = hybrid(config, config.every(2, LINEAR, FULL))
    return with_windows(layers, config.window(), FULL)
