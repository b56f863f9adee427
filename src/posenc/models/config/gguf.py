"""Translate the metadata of a GGUF file into a config.json, and parse it into a `Spec`.

A missing key has llama.cpp's default from `llama_cpp.toml`, not that of the class in transformers.
For some architectures llama.cpp's converter reorders the rows of the q and k projections so that
the channels of a pair are adjacent, which changes the layout. `llama_model_rope_type` in llama.cpp
lists these architectures.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from math import inf, log, nextafter, pi
from typing import TYPE_CHECKING, Any, NoReturn

from posenc.models.config import families
from posenc.models.config.fields import Fields
from posenc.models.config.parse import specify
from posenc.models.config.rope_settings import ONE_PAIR, TWO_PAIRS
from posenc.models.config.spec import Layer, Rotary, Spec
from posenc.models.files.errors import ModelError, Unread
from posenc.models.files.strict import MOST_INT

if TYPE_CHECKING:
    from posenc.core.frequencies import Layout

KEYS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "full_attention_interval": "full_attention_interval",
    "rope.freq_base": "rope_theta",
}
# Keys that change attention; a file that states one which is not translated raises Unread
CHANGING = re.compile(
    r"attention\.(scale|temperature_\w+|sliding_window_pattern|key_length_\w+|recurrent_layers)"
    r"|rope\.(?!scaling\.(?!alpha)|dimension_count$|scale_linear)[\w.]+"
)
YARN = "rope.scaling.yarn_"
PATTERN = "attention.sliding_window_pattern"
SIZES = ("head_dim", "num_attention_heads", "hidden_size")
LLAMA3 = "rope_freqs.weight"  # tensor of divisors of the frequencies
LONGROPE = {"short_factor": "rope_factors_short.weight", "long_factor": "rope_factors_long.weight"}
TRAINED = 8192  # trained length of all models published with `LLAMA3`, which does not state it


@cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads((files("posenc.models.config") / "llama_cpp.toml").read_text("utf-8"))


# general.architecture → model_type, layout in the file
MODELS: dict[str, tuple[str, "Layout"]] = {
    name: (line["model_type"], line["layout"])
    for name, line in _table().items()
    if "model_type" in line
}


def specify_gguf(metadata: Mapping[str, Any], tensors: Mapping[str, Any], file: str) -> Spec:
    """Return the `Spec` of a GGUF file: the positional encoding of each layer.

    `tensors` maps names to tensors, of which only factors of frequencies are read.
    Raises ModelError, and Unread for an architecture that is not supported.
    """
    config = as_config(metadata, tensors, file)
    name = metadata["general.architecture"]
    values = _completed(metadata, file)
    rotary_dim, spec = _rotary_dim(values, config), specify(config, file)
    _, layout = MODELS[name]
    notes = (*spec.notes, *_ignored(values, metadata))
    notes += (f"translated from the metadata of {file} to the keys of a config.json",)
    layers = tuple(_with_layout(layer, layout, rotary_dim) for layer in spec.layers)
    if name == "deepseek2" and not values[f"{YARN}log_multiplier"]:
        layers = tuple(map(_with_logit_gain, layers))
    return replace(spec, layers=layers, notes=notes)


def as_config(metadata: Mapping[str, Any], tensors: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return a config.json with the same positional settings as the metadata."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in MODELS:
        allowed = ", ".join(MODELS)
        raise Unread(file, "general.architecture", "is not supported", name, allowed)
    values = _completed(metadata, file)
    model, _ = MODELS[name]
    if name == "olmo2" and values["attention.sliding_window"]:
        model = "olmo3"
    family = families.family(model)
    assert family is not None
    config: dict[str, Any] = {"model_type": model}
    config |= {
        family.keys.get(usual, usual): values[key]
        for key, usual in KEYS.items()
        if key in values.values
    }
    if not config["sliding_window"]:
        config["sliding_window"] = None
    if values["attention.causal"] is not True:
        config["is_causal"] = values["attention.causal"]
    if isinstance(family.causal, str):
        config[family.causal] = values["attention.causal"]
    scaling = _scaling(values)
    if scaling or family.defaults.get("rope_parameters"):
        config["rope_scaling"] = scaling or {"rope_type": "default"}
    if "partial_rotary_factor" in (family.defaults.get("rope_parameters") or ()):
        config[family.keys.get("partial_rotary_factor", "partial_rotary_factor")] = _share(values)
    adapt, read = OF_MODELS.get(model, (None, ()))
    read = (*KEYS, *read, *_table()[name].get("defaults", ()))
    for key in values.values:
        if CHANGING.fullmatch(key) and key not in read:
            values.unsupported(key, "is not supported for this architecture")
    if PATTERN in values.values and "layer_types" not in family.ignored:
        _pattern(config, values)
    if adapt is not None:
        adapt(config, values)
    if LLAMA3 in tensors:
        base = values.number("rope.freq_base") or 10_000.0
        config["rope_scaling"] = _llama3(base, tensors[LLAMA3], file)
    if longrope := [factors for factors in LONGROPE.values() if factors in tensors]:
        problem = "contains LongRoPE factors, which posenc does not support in a GGUF file"
        raise Unread(file, longrope[0], problem)
    return config


class Metadata(Fields):
    """Metadata of a GGUF file. Keys lack the architecture's prefix, such as "llama."."""

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def get(self, key: str) -> Any:
        return self.values.get(key)

    def unsupported(self, key: str, problem: str, *got: Any) -> NoReturn:
        """Raise the exception Unread for a key of a valid file that posenc does not support."""
        raise Unread(self.file, self.at(key), problem, *got)


def _completed(metadata: Mapping[str, Any], file: str) -> Metadata:
    """Return the metadata without the architecture's prefix, completed with llama.cpp's defaults.

    Layers for multi-token prediction are not counted. Raises ModelError for a missing key without a
    default.
    """
    name = metadata["general.architecture"]
    every, line = _table()["all"], _table()[name]
    stated = {key.removeprefix(f"{name}."): value for key, value in metadata.items()}
    for key in (*every["required"], *line.get("required", ())):
        if key not in stated:
            problem = "is missing, but llama.cpp requires it for this architecture"
            raise ModelError(file, f"{name}.{key}", problem)
    values = {**every["defaults"], **line.get("defaults", {}), **stated}
    layers, further = values["block_count"], values["nextn_predict_layers"]
    if type(layers) is type(further) is int and 0 < further < layers:
        values["block_count"] = layers - further
    if values["block_count"] != line.get("windowed_layers", values["block_count"]):
        values["attention.sliding_window"] = stated.get("attention.sliding_window", 0)
    values.setdefault("attention.key_length", _even_share(values))
    for key in values.keys() - stated.keys():
        while isinstance(values[key], str) and values[key] in values:
            values[key] = values[values[key]]
    return Metadata(values, file, name)


def _even_share(values: Mapping[str, Any] | Metadata) -> Any:
    """Return the default head size, width / query heads; None if one of the two is invalid."""
    width, heads = values["embedding_length"], values["attention.head_count"]
    if isinstance(heads, list):
        heads = next((count for count in heads if count), None)
    # Invalid sizes raise an error later, when `Fields` reads the keys
    sizes = all(type(size) is int and 0 < size <= MOST_INT for size in (width, heads))
    return max(width // heads, 1) if sizes else None


def _share(values: Metadata) -> float:
    """Return the share of a head's channels that are rotated."""
    turned, dim = values["rope.dimension_count"], values["attention.key_length"]
    if type(turned) is not int or type(dim) is not int or not 0 < turned < dim:
        return 1.0
    share = turned / dim
    return share if int(dim * share) == turned else nextafter(share, 1.0)


def _ignored(values: Metadata, metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note for each key of the file that llama.cpp does not read for this model."""
    name = values.path
    line, notes = _table()[name], []
    for key in (values.at(key) for key in sorted(values.values) if key.startswith(YARN)):
        if key in metadata and key.partition(YARN)[2] not in line.get("yarn", ()):
            notes.append(f"{key} is {metadata[key]}, which llama.cpp does not read for {name}")
    window = metadata.get(f"{name}.attention.sliding_window")
    other_depth = values["block_count"] != line.get("windowed_layers", values["block_count"])
    if window and (name == "phi3" or other_depth):
        notes.append(f"{name}.attention.sliding_window is {window}, which llama.cpp ignores")
    return tuple(notes)


def _scaling(values: Metadata) -> dict[str, Any]:
    """Return transformers' rope settings for the scaling in the file; {} if it does not scale."""
    method, allowed = values["rope.scaling.type"], _table()["all"]["scalings"]
    if method not in allowed:
        values.fail("rope.scaling.type", "must be a known method", method, ", ".join(allowed))
    gain = values.number("rope.scaling.attn_factor") or 1.0
    factor = 1.0
    if values["rope.scaling.factor"] != 0 and method != "none":
        factor = values.number("rope.scaling.factor") or 1.0
    if method != "yarn":
        if gain != 1:
            problem = f"is not supported with {method!r}"
            values.unsupported("rope.scaling.attn_factor", problem, gain)
        scales = method == "longrope" or factor != 1
        return {"rope_type": method, "factor": factor} if scales else {}
    if (strength := values.values.get(f"{YARN}ext_factor", 1.0)) != 1:
        problem = "must be 1, since other strengths of YaRN are not supported"
        values.unsupported(f"{YARN}ext_factor", problem, strength)
    trained = values["rope.scaling.original_context_length"]
    scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": trained}
    return scaling | _yarn(values, factor, gain)


def _yarn(values: Metadata, factor: float, gain: float) -> dict[str, Any]:
    """Return the file's YaRN settings, as far as llama.cpp reads them for this architecture."""
    name, scaling = values.path, {}
    line = _table()[name].get("yarn", ())
    for key in ("beta_fast", "beta_slow"):
        if key in line:
            scaling[key] = values[YARN + key]
    grown = lambda m: 0.1 * m * log(factor) + 1 if factor > 1 else 1.0  # noqa: E731
    usual = grown(1.0)
    if "log_multiplier" in line and values[f"{YARN}log_multiplier"] != 0:
        strength = values.number(f"{YARN}log_multiplier") or 1.0
        # DeepSeek's converter stores a tenth of mscale_all_dim, which equals mscale
        strength = strength * 10 if name == "deepseek2" else strength
        mscale = strength if name == "deepseek2" else 1.0
        scaling |= {"mscale": mscale, "mscale_all_dim": strength}
        usual = grown(mscale) / grown(strength)
    # llama.cpp multiplies YaRN's default gain by this key
    if gain != 1:
        scaling["attention_factor"] = gain * usual
    return scaling


def _llama3(base: float, stored: Any, file: str) -> dict[str, Any]:
    """Return the Llama 3 rope settings that give the frequency divisors in the GGUF file.

    Raises Unread if no known settings do.
    """
    factors = stored.flatten().tolist() if hasattr(stored, "flatten") else []
    dim, divide = 2 * len(factors), all(0 < factor < inf for factor in factors)
    for high in (4.0, 1.0) if divide else ():
        settings = {"factor": max(factors, default=1.0), "low_freq_factor": 1.0}
        settings |= {"high_freq_factor": high, "original_max_position_embeddings": TRAINED}
        own = [_llama3_factor(base ** (2 * n / dim), settings) for n in range(dim // 2)]
        if factors and all(abs(a - b) <= 1e-5 * b for a, b in zip(factors, own, strict=True)):
            return {"rope_type": "llama3", **settings}
    raise Unread(
        file,
        LLAMA3,
        "must contain Llama 3's divisors of the frequencies, since posenc supports no others",
    )


def _llama3_factor(wavelength: float, settings: Mapping[str, float]) -> float:
    """Return the number by which Llama 3 divides a pair's θ; `wavelength` is 1/θ, not 2π/θ."""
    turns = settings["original_max_position_embeddings"] / (2 * pi * wavelength)
    low, high = settings["low_freq_factor"], settings["high_freq_factor"]
    if turns > high or turns < low or low == high:
        return 1.0 if turns > high else settings["factor"]
    kept = (turns - low) / (high - low)
    return 1 / ((1 - kept) / settings["factor"] + kept)


# ------------------------------------------------------- functions for single architectures


def _granite(config: dict[str, Any], values: Metadata) -> None:
    """Set the softmax scale to llama.cpp's default, 1/√channels, if the file does not state it."""
    dim = values["attention.key_length"]
    even = dim**-0.5 if type(dim) is int and 0 < dim <= MOST_INT else 1.0
    config["attention_multiplier"] = values["attention.scale"] or even
    if values.get("rope.scaling.finetuned") is False and config["model_type"] == "granite":
        problem = "must be true, since Granite without RoPE is not supported"
        values.unsupported("rope.scaling.finetuned", problem, False)


def _granite_hybrid(config: dict[str, Any], values: Metadata) -> None:
    """Set the softmax scale, the layer types, and "rope" or None as encoding, from the metadata."""
    _granite(config, values)
    _by_heads(config, "mamba", "attention")
    config["position_embedding_type"] = "rope" if values["rope.scaling.finetuned"] else None


def _nemotron_h(config: dict[str, Any], values: Metadata) -> None:
    """Set the layer types: MLP for layers that have an MLP width but no key heads."""
    _by_heads(config, "mamba", "attention")
    widths, kinds = values.get("feed_forward_length"), config.get("layers_block_type")
    if isinstance(widths, list) and isinstance(kinds, list) and len(widths) >= len(kinds):
        both = zip(kinds, widths, strict=False)
        types = ["mlp" if kind == "mamba" and width else kind for kind, width in both]
        config["layers_block_type"] = types


def _lfm2(config: dict[str, Any], values: Metadata) -> None:
    if values["attention.sliding_window"]:
        values.unsupported("attention.sliding_window", "is not supported for this architecture")
    _by_heads(config, "conv", "full_attention")


def _by_heads(config: dict[str, Any], without: str, with_: str) -> None:
    """Set the layer types: `with_` for layers that have key heads, `without` for the others."""
    counts = config.get("num_key_value_heads")
    name = "layers_block_type" if config["model_type"] == "nemotron_h" else "layer_types"
    layers = config["num_hidden_layers"]
    if isinstance(counts, list):
        counts = counts[:layers] if type(layers) is int else counts
        config[name] = [with_ if count else without for count in counts]
    elif type(layers) is int:
        config[name] = [with_ if counts else without] * min(layers, 10_000)
    for key in ("num_attention_heads", "num_key_value_heads"):
        if isinstance(config.get(key), list):
            config[key] = next((count for count in config[key] if count), None)


def _llama4(config: dict[str, Any], values: Metadata) -> None:
    if not values["attention.sliding_window"]:
        problem = "must be above 0, since Llama 4 without chunked attention is not supported"
        values.unsupported("attention.sliding_window", problem, 0)


def _gemma(config: dict[str, Any], values: Metadata) -> None:
    """Set the softmax scale: 1/√(width / heads) for Gemma 27B, otherwise 1/√channels."""
    large = config["num_hidden_layers"] == {"gemma2": 46}.get(config["model_type"], 62)
    config["query_pre_attn_scalar"] = _even_share(values) if large else config["head_dim"]
    if config["model_type"] == "gemma2":
        config["attn_logit_softcapping"] = values["attn_logit_softcapping"]
    elif config["sliding_window"]:
        config["rope_local_base_freq"] = values["rope.freq_base_swa"]


def _olmo3(config: dict[str, Any], values: Metadata) -> None:
    """Set rope settings for each layer type: one base, and scaling only in full attention."""
    base = {"rope_theta": config.pop("rope_theta")}
    full = {"rope_type": "default", **config.pop("rope_scaling", {}), **base}
    plain = {"rope_type": "default", **base}
    config["rope_parameters"] = {"full_attention": full, "sliding_attention": plain}


def _pattern(config: dict[str, Any], values: Metadata) -> None:
    """Set the layer types (sliding or full attention) from a list of flags or a period."""
    slides, count = values[PATTERN], config["num_hidden_layers"]
    if type(slides) is int and slides >= 0 and type(count) is int:
        slides = [slides == 0 or bool((n + 1) % slides) for n in range(min(count, 10_000))]
    if isinstance(slides, list):
        window = config["sliding_window"]
        slides = slides[:count] if type(count) is int else slides
        kinds = ["sliding_attention" if window and one else "full_attention" for one in slides]
        config["layer_types"] = kinds


def _deepseek(config: dict[str, Any], values: Metadata) -> None:
    """Set the head sizes and the number of key heads as in DeepSeek's config (MLA).

    The metadata count the latent vector as one key head.
    """
    whole = values.get("attention.key_length_mla") or values["attention.key_length"]
    turned = values["rope.dimension_count"]
    config.pop("qk_rope_head_dim", None)
    if type(whole) is not int or type(turned) is not int or not 0 < turned < whole:
        problem = "must be less than the number of channels per head"
        values.fail("rope.dimension_count", problem, turned, f"1 … {whole}")
    config |= {"qk_rope_head_dim": turned, "qk_nope_head_dim": whole - turned}
    config["num_key_value_heads"] = config["num_attention_heads"]


def _ministral3(config: dict[str, Any], values: Metadata) -> None:
    """Set the scale of queries beyond the trained length."""
    if strength := values["attention.temperature_scale"]:
        config["rope_scaling"] |= {
            "llama_4_scaling_beta": strength,
            "original_max_position_embeddings": values["rope.scaling.original_context_length"],
        }


def _qwen3_next(config: dict[str, Any], values: Metadata) -> None:
    recurrent = values.get("attention.recurrent_layers")
    if isinstance(recurrent, list):
        kinds = ["linear_attention" if one else "full_attention" for one in recurrent]
        count = config["num_hidden_layers"]
        config["layer_types"] = kinds[:count] if type(count) is int else kinds
    sections = values.get("rope.dimension_sections")
    if isinstance(sections, list):
        config["rope_scaling"]["mrope_section"] = [pairs for pairs in sections if pairs]


MIXED = ("attention.recurrent_layers",)
SECTIONS = (*MIXED, "rope.dimension_sections")
# By model_type: a function that adapts the config, and further keys that are translated
OF_MODELS: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    "granite": (_granite, ()),
    "granitemoe": (_granite, ()),
    "granitemoehybrid": (_granite_hybrid, ()),
    "nemotron_h": (_nemotron_h, ()),
    "lfm2": (_lfm2, ()),
    "llama4_text": (_llama4, ()),
    "gemma2": (_gemma, ()),
    "gemma3_text": (_gemma, ()),
    "olmo3": (_olmo3, ()),
    "deepseek_v3": (_deepseek, ("attention.key_length_mla",)),
    "ministral3": (_ministral3, ("attention.temperature_length",)),
    "qwen3_next": (_qwen3_next, MIXED),
    "qwen3_5_text": (_qwen3_next, SECTIONS),
    "qwen3_5_moe_text": (_qwen3_next, SECTIONS),
}


def _rotary_dim(values: Metadata, config: Mapping[str, Any]) -> int | None:
    """Return the number of rotated channels per head; None if `qk_rope_head_dim` is set."""
    rotary_dim, dim = values["rope.dimension_count"], values["attention.key_length"]
    if "qk_rope_head_dim" in config or type(rotary_dim) is not int or type(dim) is not int:
        return None
    key = "rope.dimension_count"
    if not 0 < rotary_dim <= dim:
        values.fail(key, "must be at most the head size", rotary_dim, f"1 … {dim}")
    if rotary_dim % 2:
        values.fail(key, "must be even, since channels are rotated in pairs", rotary_dim)
    method = config.get("rope_scaling", {}).get("rope_type")
    if rotary_dim == 2 and method in TWO_PAIRS:
        values.fail(key, f"{method} {ONE_PAIR}", rotary_dim)
    return rotary_dim


def _with_layout(layer: Layer, layout: "Layout", rotary_dim: int | None) -> Layer:
    turn = layer.encoding
    if not isinstance(turn, Rotary):
        return layer
    return replace(layer, encoding=replace(turn, layout=layout, turned=rotary_dim or turn.turned))


def _with_logit_gain(layer: Layer) -> Layer:
    """Multiply a layer's softmax scale by the square of YaRN's attention factor.

    llama.cpp does this for files without `yarn_log_multiplier`.
    """
    turn = layer.encoding
    if not isinstance(turn, Rotary) or turn.method != "yarn":
        return layer
    return replace(layer, encoding=replace(turn, logit_gain=turn.gain**2))
