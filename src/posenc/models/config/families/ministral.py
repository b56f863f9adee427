"""Ministral and similar families, in which all layers have one type unless `layer_types` is set."""

from posenc.models.config.layers import FULL, SLIDING, USUAL, Config, Layer, stack

KINDS = {
    "ministral": SLIDING,
    "cohere_compass_text": FULL,
    "laguna": FULL,
    "mellum": FULL,
    "falcon_h1": "hybrid",  # attention beside a recurrence
    "zaya": "hybrid",
}
MODELS = " ".join(KINDS)


def layers(config: Config) -> list[Layer]:
    kind = KINDS[config.family.name]
    return stack(config, config.repeated([kind]), (*USUAL, kind))
