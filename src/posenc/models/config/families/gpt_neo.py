"""GPT-Neo and Dia: standard layers with softmax scale 1."""

from posenc.models.config.layers import Config, Layer, stack

MODELS = "gpt_neo dia_encoder dia_decoder"


def layers(config: Config) -> list[Layer]:
    return stack(config, scale=1.0)
