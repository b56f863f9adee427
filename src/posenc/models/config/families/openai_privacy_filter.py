"""OpenAI's privacy filter: windows of `sliding_window` tokens on each side; learned sinks."""

from posenc.models.config.layers import FULL, SLIDING, Config, Layer, stack


def layers(config: Config) -> list[Layer]:
    size = config.window(ends=1)
    return stack(config, windows={SLIDING: size, FULL: size}, sinks=True)
