"""OpenAI's privacy filter: windows to both sides, their ends included, and learned sinks."""

from posenc.models.config.layers import FULL, SLIDING, Config, Layer, stack, with_windows


def layers(config: Config) -> list[Layer]:
    size = config.window()
    return with_windows(stack(config, sinks=True), size and size + 1, SLIDING, FULL)
