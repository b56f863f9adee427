"""Conformers with sines of the distance, as in Transformer-XL, which alternate with cosines."""

from posenc.models.config.families.xlnet import with_sines
from posenc.models.config.layers import Config, Layer, stack

MODELS = "parakeet_encoder wav2vec2-conformer"


def layers(config: Config) -> list[Layer]:
    if config.family.name == "parakeet_encoder":
        return with_sines(config, halves=False)
    key = "position_embeddings_type"
    kind = config.value(key) if key in config.values else "relative"
    if kind == "rotary":
        why = "it turns what queries and keys are projected from, not them"
        config.refuse("model_type", config.family.name, why)
    return stack(config) if kind is None else with_sines(config, halves=False)
