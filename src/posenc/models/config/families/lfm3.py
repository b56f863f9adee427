"""LFM3: every second layer is a convolution; between them, sliding and full attention alternate."""

from posenc.models.config.layers import FULL, SLIDING, Config, Layer, hybrid


def layers(config: Config) -> list[Layer]:
    usual = ["conv", *config.repeated((SLIDING, "conv", FULL, "conv"))[1:]]
    return hybrid(config, usual, (FULL, SLIDING))
