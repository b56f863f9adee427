"""The metadata of a GGUF file as a config.json would say it.

llama.cpp keeps queries and keys of some architectures with the channels of a pair side by side, and
reorders the weights so as it converts them: then the layout is not that of the same model in
transformers. The two groups are those of `llama_model_rope_type` in llama.cpp.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from posenc.models.config.parse import specify
from posenc.models.config.spec import Layer, Rotary, Spec
from posenc.models.files.errors import ModelError, Unread

if TYPE_CHECKING:
    from posenc.core.frequencies import Layout

MODELS: dict[
    str, tuple[str, "Layout"]
] = {  # general.architecture -> model_type, layout in the file
    "llama": ("llama", "interleaved"),
    "command-r": ("cohere", "interleaved"),
    "cohere2": ("cohere2", "interleaved"),
    "granite": ("granite", "interleaved"),
    "olmo": ("olmo", "interleaved"),
    "smollm3": ("smollm3", "interleaved"),
    "gptneox": ("gpt_neox", "half"),
    "qwen2": ("qwen2", "half"),
    "qwen3": ("qwen3", "half"),
    "gemma": ("gemma", "half"),
    "gemma2": ("gemma2", "half"),
    "gemma3": ("gemma3_text", "half"),
    "gpt-oss": ("gpt_oss", "half"),
    "olmo2": ("olmo2", "half"),
    "phi2": ("phi", "half"),
    "phi3": ("phi3", "half"),
    "stablelm": ("stablelm", "half"),
    "starcoder2": ("starcoder2", "half"),
}
KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
}
SCALING = {
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.attn_factor": "attention_factor",
}
SIZES = ("head_dim", "num_attention_heads", "hidden_size")
FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


def read(metadata: Mapping[str, Any], tensors: Mapping[str, Any], file: str) -> Spec:
    """The specification of a GGUF file. Raises ModelError, or Unread for other architectures."""
    said = config(metadata, tensors, file)
    turned, spec = _turned(metadata, said, file), specify(said, file)
    _, layout = MODELS[metadata["general.architecture"]]
    notes = (*spec.notes, f"read from the metadata of {file}, as the keys of a config.json")
    layers = tuple(_laid(layer, layout, turned) for layer in spec.layers)
    return replace(spec, layers=layers, notes=notes)


def config(metadata: Mapping[str, Any], tensors: Mapping[str, Any], file: str) -> dict[str, Any]:
    """What its metadata says of positions, as the keys of a config.json."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in MODELS:
        known = ", ".join(MODELS)
        raise Unread(file, "general.architecture", "is not read by posenc", name, known)
    for factors in FACTORS:
        if factors in tensors:
            raise Unread(file, factors, "divides the frequencies, which posenc does not read")
    model, _ = MODELS[name]
    own = {key.removeprefix(f"{name}."): value for key, value in metadata.items()}
    said: dict[str, Any] = {"model_type": model}
    said |= {usual: own[key] for key, usual in KEYS.items() if key in own}
    scaling = {usual: own[key] for key, usual in SCALING.items() if key in own}
    if scaling.get("rope_type", "none") != "none":
        said["rope_scaling"] = scaling
    return said


def _turned(metadata: Mapping[str, Any], said: Mapping[str, Any], file: str) -> int | None:
    """Channels of a head that turn; None: all."""
    key = f"{metadata['general.architecture']}.rope.dimension_count"
    turned, dim, heads, width = metadata.get(key), *map(said.get, SIZES)
    if dim is None and isinstance(heads, int) and isinstance(width, int):
        dim = width // max(heads, 1)
    if not isinstance(turned, int) or not isinstance(dim, int) or dim < 1 or turned == dim:
        return None
    if not 0 < turned < dim:
        raise ModelError(file, key, "is of a head's channels", turned, f"1 … {dim}")
    if turned % 2:
        raise ModelError(file, key, "channels turn in pairs, so it must be even", turned)
    return turned


def _laid(layer: Layer, layout: "Layout", turned: int | None) -> Layer:
    turn = layer.encoding
    if not isinstance(turn, Rotary):
        return layer
    return replace(layer, encoding=replace(turn, layout=layout, turned=turned or turn.turned))
