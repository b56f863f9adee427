"""gpt-oss: alternating sliding and full attention; each head has a learned sink."""

from posenc.models.config.layers import Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    return stack(config, config.every(2), sinks=True)
