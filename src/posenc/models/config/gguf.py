"""Translate the metadata of a GGUF file into the keys of a config.json, and specify it.

For some architectures llama.cpp reorders the rows of the q and k projections, so that the channels
of a pair sit side by side: then the layout differs from that of the same model in transformers. The
two groups are those of `llama_model_rope_type` in llama.cpp.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, log, pi, prod
from typing import TYPE_CHECKING, Any

from posenc.models.config import families
from posenc.models.config.parse import specify
from posenc.models.config.rope_settings import OF_PAIRS, ONE_PAIR
from posenc.models.config.spec import Layer, Rotary, Spec
from posenc.models.files.errors import ModelError, Unread
from posenc.models.files.strict import MOST_INT

if TYPE_CHECKING:
    from posenc.core.frequencies import Layout

MODELS: dict[
    str, tuple[str, "Layout"]
] = {  # general.architecture -> model_type, layout in the file
    "llama": ("llama", "interleaved"),
    "llama4": ("llama4_text", "interleaved"),
    "command-r": ("cohere", "interleaved"),
    "cohere2": ("cohere2", "interleaved"),
    "granite": ("granite", "interleaved"),
    "granitehybrid": ("granitemoehybrid", "interleaved"),
    "granitemoe": ("granitemoe", "interleaved"),
    "mistral3": ("ministral3", "interleaved"),
    "olmo": ("olmo", "interleaved"),
    "smollm3": ("smollm3", "interleaved"),
    "deepseek2": ("deepseek_v3", "interleaved"),
    "gptneox": ("gpt_neox", "half"),
    "qwen2": ("qwen2", "half"),
    "qwen3": ("qwen3", "half"),
    "qwen35": ("qwen3_5_text", "half"),
    "qwen35moe": ("qwen3_5_moe_text", "half"),
    "qwen3moe": ("qwen3_moe", "half"),
    "qwen3next": ("qwen3_next", "half"),
    "gemma": ("gemma", "half"),
    "gemma2": ("gemma2", "half"),
    "gemma3": ("gemma3_text", "half"),
    "glm4moe": ("glm4_moe", "half"),
    "gpt-oss": ("gpt_oss", "half"),
    "exaone4": ("exaone4", "half"),
    "lfm2": ("lfm2", "half"),
    "minimax-m2": ("minimax_m2", "half"),
    "olmo2": ("olmo2", "half"),
    "phi2": ("phi", "half"),
    "phi3": ("phi3", "half"),
    "seed_oss": ("seed_oss", "half"),
    "stablelm": ("stablelm", "half"),
    "starcoder2": ("starcoder2", "half"),
    "bert": ("bert", "half"),  # this one and the next turn nothing
    "nemotron_h": ("nemotron_h", "half"),
}
KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.causal": "is_causal",
    "full_attention_interval": "full_attention_interval",
    "rope.freq_base": "rope_theta",
}
SCALING = {
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}
# Keys whose values are multiplied
GAINS = ("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor")
SILENT = re.compile(
    r"attention\.(scale|temperature_\w+|sliding_window_pattern)|rope\.(?!scal|dim)\w+"
)
SIZES = ("head_dim", "num_attention_heads", "hidden_size")
LLAMA3 = "rope_freqs.weight"  # what the frequencies are divided by
LONGROPE = {"short_factor": "rope_factors_short.weight", "long_factor": "rope_factors_long.weight"}
TRAINED = 8192  # tokens, of all models that were published with such factors


def specify_gguf(metadata: Mapping[str, Any], tensors: Mapping[str, Any], file: str) -> Spec:
    """The specification of a GGUF file. Raises ModelError, or Unread for other architectures.

    `tensors` maps names to tensors; those of factors are read, if there are any.
    """
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
    values = {key.removeprefix(f"{name}."): value for key, value in metadata.items()}
    model, _ = MODELS[name]
    if name == "olmo2" and values.get("attention.sliding_window"):
        model = "olmo3"
    config: dict[str, Any] = {"model_type": model}
    family = families.family(model)
    names = family.keys if family else {}
    config |= {names.get(usual, usual): values[key] for key, usual in KEYS.items() if key in values}
    if scaling := _scaling(values, file, name):
        config["rope_scaling"] = scaling
    adapt, read = OF_MODELS.get(model, (None, ()))
    for key in values:
        if SILENT.fullmatch(key) and key not in (*KEYS, *read):
            raise Unread(file, f"{name}.{key}", "is not read by posenc, of this architecture")
    if adapt is not None:
        adapt(config, values)
    if LLAMA3 in tensors:
        base = _number(values, "rope.freq_base", file, name) or 10_000.0
        config["rope_scaling"] = _llama3(base, tensors[LLAMA3], file)
    if longrope := [factors for factors in LONGROPE.values() if factors in tensors]:
        raise Unread(file, longrope[0], "divides the frequencies, which posenc does not read")
    return config


def _scaling(values: Mapping[str, Any], file: str, name: str) -> dict[str, Any]:
    """The rope settings of a config, in the terms of transformers."""
    method = values.get("rope.scaling.type", "none")
    gain = prod(_number(values, key, file, name) or 1.0 for key in GAINS)
    if method == "none" and gain == 1:
        return {}
    scaling = {usual: values[key] for key, usual in SCALING.items() if key in values}
    if values.get("rope.scaling.yarn_ext_factor", 1.0) != 1:
        key = f"{name}.rope.scaling.yarn_ext_factor"
        raise Unread(file, key, "mixes YaRN in part, which posenc does not read")
    if method != "yarn":
        if gain != 1:
            raise Unread(file, f"{name}.{GAINS[0]}", f"scales cos and sin beside {method!r}", gain)
        return scaling
    if gain != 1:  # llama.cpp multiplies both by what YaRN takes by itself
        factor = _number(values, "rope.scaling.factor", file, name) or 1.0
        scaling["attention_factor"] = gain * (1 + 0.1 * log(max(factor, 1.0)))
    if strength := _number(values, "rope.scaling.yarn_log_multiplier", file, name):
        # DeepSeek's mscale_all_dim, to which its converter gives a tenth; mscale is the same.
        strength = strength * 10 if name == "deepseek2" else strength
        scaling |= {"mscale": strength, "mscale_all_dim": strength}
    return scaling


def _number(values: Mapping[str, Any], key: str, file: str, name: str) -> float | None:
    """Read a number that is reckoned with; None where there is none."""
    value = values.get(key)
    if value is None:
        return None
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not 0 < value <= MOST_INT:
        where = f"{name}.{key}"
        raise ModelError(file, where, "must be a number", value, "above 0, at most 2⁵³")
    return float(value)


def _llama3(base: float, stored: Any, file: str) -> dict[str, Any]:
    """The settings of Llama 3's scaling of which a file holds the factors alone.

    They were found if they make the very same factors.
    """
    factors = stored.flatten().tolist() if hasattr(stored, "flatten") else []
    dim, divide = 2 * len(factors), all(0 < factor < inf for factor in factors)
    for high in (4.0, 1.0) if divide else ():
        settings = {"factor": max(factors, default=1.0), "low_freq_factor": 1.0}
        settings |= {"high_freq_factor": high, "original_max_position_embeddings": TRAINED}
        own = [_llama3_factor(base ** (2 * n / dim), settings) for n in range(dim // 2)]
        if factors and all(abs(a - b) <= 1e-5 * b for a, b in zip(factors, own, strict=True)):
            return {"rope_type": "llama3", **settings}
    raise Unread(file, LLAMA3, "divides the frequencies by other factors than Llama 3's")


def _llama3_factor(wavelength: float, settings: Mapping[str, float]) -> float:
    """What Llama 3's scaling divides the frequency of a pair by; `wavelength` is in radians."""
    turns = settings["original_max_position_embeddings"] / (2 * pi * wavelength)
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    if turns > high or turns < low or low == high:
        return 1.0 if turns > high else settings["factor"]
    kept = (turns - low) / (high - low)
    return 1 / ((1 - kept) / settings["factor"] + kept)


# ------------------------------------------------------- what llama.cpp knows of one architecture


def _granite(config: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Without the key llama.cpp scales by 1/√channels, and the class by 1."""
    scale = values.get("attention.scale")
    config["attention_multiplier"] = scale or _even_share(config) ** -0.5


def _granite_hybrid(config: dict[str, Any], values: Mapping[str, Any]) -> None:
    _granite(config, values)
    _by_heads(config, "mamba", "attention")
    config["position_embedding_type"] = "rope" if values.get("rope.scaling.finetuned") else None


def _nemotron_h(config: dict[str, Any], values: Mapping[str, Any]) -> None:
    _by_heads(config, "mamba", "attention")
    widths, kinds = values.get("feed_forward_length"), config.get("layers_block_type")
    if isinstance(widths, list) and isinstance(kinds, list) and len(widths) == len(kinds):
        both = zip(kinds, widths, strict=True)
        types = ["mlp" if kind == "mamba" and width else kind for kind, width in both]
        config["layers_block_type"] = types


def _lfm2(config: dict[str, Any], values: Mapping[str, Any]) -> None:
    _by_heads(config, "conv", "full_attention")


def _by_heads(config: dict[str, Any], without: str, with_: str) -> None:
    """Layers whose number of heads of keys is 0 do not attend."""
    counts = config.get("num_key_value_heads")
    if isinstance(counts, list):
        name = "layers_block_type" if config["model_type"] == "nemotron_h" else "layer_types"
        config[name] = [with_ if count else without for count in counts]
    for key in ("num_attention_heads", "num_key_value_heads"):
        if isinstance(config.get(key), list):
            config[key] = next((count for count in config[key] if count), None)


def _gemma(config: dict[str, Any], values: Mapping[str, Any]) -> None:
    """llama.cpp tells the 27B by its depth: its scale is that of an even share of the width."""
    large = config.get("num_hidden_layers") == {"gemma2": 46}.get(config["model_type"], 62)
    dim = config.get("head_dim")
    config["query_pre_attn_scalar"] = _even_share({**config, "head_dim": None if large else dim})
    if (base := values.get("rope.freq_base_swa")) is not None:
        config["rope_local_base_freq"] = base
    _pattern(config, values, 2 if config["model_type"] == "gemma2" else 6)


def _olmo3(config: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Each fourth layer sees all, and only these are scaled; they have one base."""
    _pattern(config, values, 4)
    base = {"rope_theta": config.pop("rope_theta", 10_000.0)}
    full = {"rope_type": "default", **config.pop("rope_scaling", {}), **base}
    plain = {"rope_type": "default", **base}
    config["rope_parameters"] = {"full_attention": full, "sliding_attention": plain}


def _exaone4(config: dict[str, Any], values: Mapping[str, Any]) -> None:
    """The small one has no windows."""
    config.setdefault("sliding_window", None)
    if config["sliding_window"]:
        _pattern(config, values, 4)
    else:
        config["layer_types"] = ["full_attention"] * (config.get("num_hidden_layers") or 0)


def _pattern(config: dict[str, Any], values: Mapping[str, Any], usual: int) -> None:
    """List the layers that slide, of which the file may list flags or the period of others."""
    said = values.get("attention.sliding_window_pattern", usual)
    count = config.get("num_hidden_layers")
    if isinstance(said, int) and not isinstance(said, bool) and said > 0 and isinstance(count, int):
        said = [bool((n + 1) % said) for n in range(min(count, 10_000))]
    if isinstance(said, list):
        types = ["sliding_attention" if slides else "full_attention" for slides in said]
        config["layer_types"] = types


def _deepseek(config: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Keys are stored as what they are made of, for one head that all share."""
    whole = values.get("attention.key_length_mla", values.get("attention.key_length"))
    turned = values.get("rope.dimension_count")
    config.pop("head_dim", None)
    if isinstance(whole, int) and isinstance(turned, int) and 0 < turned <= whole:
        config |= {"qk_rope_head_dim": turned, "qk_nope_head_dim": whole - turned}
    config["num_key_value_heads"] = config.get("num_attention_heads")


def _ministral3(config: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Queries are sharpened from the trained length on."""
    strength = values.get("attention.temperature_scale")
    if strength and "rope_scaling" in config:
        config["rope_scaling"]["llama_4_scaling_beta"] = strength
        config["rope_scaling"]["mscale"] = 1.0


def _qwen3_next(config: dict[str, Any], values: Mapping[str, Any]) -> None:
    turned, dim = values.get("rope.dimension_count"), config.get("head_dim")
    if isinstance(turned, int) and isinstance(dim, int) and 0 < turned < dim:
        config["partial_rotary_factor"] = turned / dim
    sections = values.get("rope.dimension_sections")
    if isinstance(sections, list):
        config["rope_scaling"] = {"rope_type": "default", **config.get("rope_scaling", {})}
        config["rope_scaling"]["mrope_section"] = [pairs for pairs in sections if pairs]


def _even_share(config: Mapping[str, Any]) -> float:
    """Channels of a head, an even share of the width where the file does not say."""
    # What is no size is refused where the keys are read
    sizes = [x if isinstance(x, int) and 0 < x <= MOST_INT else 0 for x in map(config.get, SIZES)]
    dim, heads, width = sizes
    return dim or max(width // (heads or 1), 1)


PATTERN = ("attention.sliding_window_pattern", "rope.freq_base_swa")
# By architecture, the function that reads it and the keys it needs
OF_MODELS: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    "granite": (_granite, ("attention.scale",)),
    "granitemoe": (_granite, ("attention.scale",)),
    "granitemoehybrid": (_granite_hybrid, ("attention.scale",)),
    "nemotron_h": (_nemotron_h, ()),
    "lfm2": (_lfm2, ()),
    "gemma2": (_gemma, PATTERN),
    "gemma3_text": (_gemma, PATTERN),
    "olmo3": (_olmo3, PATTERN),
    "exaone4": (_exaone4, PATTERN),
    "deepseek_v3": (_deepseek, ()),
    "ministral3": (_ministral3, ("attention.temperature_scale", "attention.temperature_length")),
    "qwen3_next": (_qwen3_next, ()),
    "qwen3_5_text": (_qwen3_next, ()),
    "qwen3_5_moe_text": (_qwen3_next, ()),
}


def _rotary_dim(metadata: Mapping[str, Any], config: Mapping[str, Any], file: str) -> int | None:
    """Number of channels of a head that are rotated; None: all, or as many as the config says."""
    if {"qk_rope_head_dim", "partial_rotary_factor"} & {*config}:
        return None
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
