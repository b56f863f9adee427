"""OLMo 3: every fourth layer has full attention; the others have a sliding window."""

from posenc.models.config.layers import Config, Layer, stack

MODELS = "olmo3 cwm"


def layers(config: Config) -> list[Layer]:
    first = config.family.name == "cwm"
    return stack(config, config.every(4, at=0 if first else -1))
