"""Granite 4 hybrid: all layers are recurrent except those that `layer_types` lists as attention.

Attention is rotated if `position_embedding_type` is "rope", and has no encoding otherwise.
"""

from posenc.models.config.layers import LINEAR, Config, Layer, hybrid, no_encoding

FACTS = {"keys": {"layer_types": "layers_block_type"}}


def layers(config: Config) -> list[Layer]:
    encode = None if config.value("position_embedding_type") == "rope" else no_encoding
    scale = config.number("attention_multiplier")
    return hybrid(config, config.repeated([LINEAR]), encode=encode, scale=scale)
