"""MiniMax: every second layer attends, within a window if the config states one."""

from posenc.models.config.layers import FULL, LINEAR, Config, Layer, hybrid


def layers(config: Config) -> list[Layer]:
    return hybrid(config, config.every(2, LINEAR, FULL), windows={FULL: config.window()})
