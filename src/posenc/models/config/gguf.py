"""Translate the metadata of a GGUF file into the keys of a config.json, and specify it.

For some architectures llama.cpp reorders the rows of the q and k projections, so that the channels
of a pair sit side by side: then the layout differs from that of the same model in transformers. The
two groups are those of `llama_model_rope_type` in llama.cpp.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from posenc.models.config import families
from posenc.models.config.parse import specify
from posenc.models.config.rope_settings import OF_PAIRS, ONE_PAIR
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


def specify_gguf(metadata: Mapping[str, Any], tensors: Mapping[str, Any], file: str) -> Spec:
    """The specification of a GGUF file. Raises ModelError, or Unread for other architectures."""
    config = as_config(metadata, tensors, file)
    rotary_dim, spec = _rotary_dim(metadata, config, file), specify(config, file)
    _, layout = MODELS[metadata["general.architecture"]]
    notes = (*spec.notes, f"read from the metadata of {file}, as the keys of a config.json")
    layers = tuple(_with_layout(layer, layout, rotary_dim) for layer in spec.layers)
    return replace(spec, layers=layers, notes=notes)


def as_config(metadata: Mapping[str, Any], tensors: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The keys of a config.json that its metadata gives about positions."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in MODELS:
        allowed = ", ".join(MODELS)
        raise Unread(file, "general.architecture", "is not read by posenc", name, allowed)
    for factors in FACTORS:
        if factors in tensors:
            raise Unread(file, factors, "divides the frequencies, which posenc does not read")
    model, _ = MODELS[name]
    values = {key.removeprefix(f"{name}."): value for key, value in metadata.items()}
    config: dict[str, Any] = {"model_type": model}
    family = families.family(model)
    names = family.keys if family else {}
    config |= {names.get(usual, usual): values[key] for key, usual in KEYS.items() if key in values}
    scaling = {usual: values[key] for key, usual in SCALING.items() if key in values}
    if scaling.get("rope_type", "none") != "none":
        config["rope_scaling"] = scaling
    return config


def _rotary_dim(metadata: Mapping[str, Any], config: Mapping[str, Any], file: str) -> int | None:
    """Number of channels of a head that are rotated; None: all."""
    key = f"{metadata['general.architecture']}.rope.dimension_count"
    rotary_dim, dim, heads, width = metadata.get(key), *map(config.get, SIZES)
    if dim is None and isinstance(heads, int) and isinstance(width, int):
        dim = width // max(heads, 1)
    if not isinstance(rotary_dim, int) or not isinstance(dim, int) or dim < 1 or rotary_dim == dim:
        return None
    if not 0 < rotary_dim < dim:
        raise ModelError(file, key, "is of a head's channels", rotary_dim, f"1 … {dim}")
    if rotary_dim % 2:
        raise ModelError(file, key, "channels turn in pairs, so it must be even", rotary_dim)
    method = config.get("rope_scaling", {}).get("rope_type")
    if rotary_dim == 2 and method in OF_PAIRS:
        raise ModelError(file, key, f"{method} {ONE_PAIR}", rotary_dim)
    return rotary_dim


def _with_layout(layer: Layer, layout: "Layout", rotary_dim: int | None) -> Layer:
    turn = layer.encoding
    if not isinstance(turn, Rotary):
        return layer
    return replace(layer, encoding=replace(turn, layout=layout, turned=rotary_dim or turn.turned))
