"""OpenAI's privacy filter: windows to both sides, which include both ends, and learned sinks."""

from posenc.models.config.layers import FULL, SLIDING, Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    size = config.window(ends=1)
    return stack(config, windows={SLIDING: size, FULL: size}, sinks=True)
