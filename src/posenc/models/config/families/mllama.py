"""Llama 3.2 Vision: the layers in `cross_attention_layers` attend to images, without RoPE."""

from posenc.models.config.layers import FULL, IDLE, Config, Layer, hybrid

MODELS = "mllama_text_model"
FACTS = {"defaults": {"cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]}}
CROSS = "cross_attention"


def layers(config: Config) -> list[Layer]:
    crossed = config.counts("cross_attention_layers")
    every = range(config.depth())
    usual = [CROSS if crossed is None or i in crossed else FULL for i in every]
    return hybrid(config, usual, idle=(*IDLE, CROSS))
