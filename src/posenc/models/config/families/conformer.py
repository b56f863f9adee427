"""Conformers with Transformer-XL's relative positions; sines and cosines alternate."""

from posenc.models.config.families.xlnet import with_sines
from posenc.models.config.layers import Config, Layer, stack

MODELS = "parakeet_encoder wav2vec2-conformer"


def layers(config: Config) -> list[Layer]:
    if config.family.name == "parakeet_encoder":
        return with_sines(config, halves=False)
    key = "position_embeddings_type"
    kind = config.value(key) if key in config.values else "relative"
    if kind == "rotary":
        why = "it rotates the input of the query and key projections, not queries and keys"
        config.refuse("model_type", config.family.name, why)
    return stack(config) if kind is None else with_sines(config, halves=False)
