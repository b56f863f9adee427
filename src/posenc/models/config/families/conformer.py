"""Conformers with Transformer-XL's relative positions, whose sinusoids alternate sin and cos."""

from dataclasses import replace

from posenc.models.config.families.xlnet import with_sines
from posenc.models.config.layers import Config, Layer, stack

MODELS = "parakeet_encoder wav2vec2-conformer nemotron_asr_streaming_encoder fastspeech2_conformer"
CHUNKS = "limits each query to its own chunk of frames and to a number of chunks before"


def layers(config: Config) -> list[Layer]:
    name, key = config.family.name, "position_embeddings_type"
    if name == "nemotron_asr_streaming_encoder":
        made = with_sines(config.with_values(_without_window(config)), halves=False)
        return [replace(layer, unsupported=CHUNKS) for layer in made]
    if name != "wav2vec2-conformer":
        return with_sines(config, halves=False, causal=False)
    kind = config.value(key) if key in config.values else "relative"
    if kind == "rotary":
        why = "it rotates the input of the query and key projections, not queries and keys"
        config.refuse("model_type", config.family.name, why)
    return stack(config) if kind is None else with_sines(config, halves=False)


def _without_window(config: Config) -> dict[str, object]:
    """Return the config's values with `sliding_window` set to None."""
    return {**config.values, "sliding_window": None}
