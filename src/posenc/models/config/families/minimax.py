"""MiniMax: softmax and linear attention alternate; softmax layers may have a sliding window."""

from posenc.models.config.layers import FULL, LINEAR, Config, Layer, hybrid


def layers(config: Config) -> list[Layer]:
    return hybrid(config, config.every(2, LINEAR, FULL), windows={FULL: config.window()})
