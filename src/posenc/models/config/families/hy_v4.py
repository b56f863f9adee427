"""Hunyuan 4: DeepSeek V3.2 with learned sinks."""

from dataclasses import replace

from posenc.models.config.families.deepseek_v3 import FACTS as MLA
from posenc.models.config.families.deepseek_v32 import indexed
from posenc.models.config.layers import INDEXED, Config, Layer

FACTS = {**MLA, "keys": {**MLA["keys"], "num_key_value_heads": "num_attention_heads"}}


def layers(config: Config) -> list[Layer]:
    return [replace(layer, sinks=layer.kind == INDEXED) for layer in indexed(config)]
