"""Write the commands that serve a model with an extended context in vLLM and other servers.

Every server reads the folder that `extend` writes. `serving` returns the same settings as options,
for a model whose config.json is unchanged. A server sets the named attributes of a transformers
config object and may keep or drop other settings, so an option states a complete `rope_parameters`.
Sources: vLLM 0.33.0 (2026-11-02: config/model.py, ModelConfig; transformers_utils/config.py,
get_config), SGLang 0.5.23 (2026-10-30: srt/utils/hf_transformers/config.py, get_config) and mlx-lm
d78bf58 (2026-08-22: utils.py, load_model).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from math import isclose
from typing import Any

from posenc.encodings.rotary.theta import yarn_gain
from posenc.models.config.families import family
from posenc.models.config.spec import Rotary, Spec

BITS = 16  # bits of a cached number in servers
SPELLINGS = "rope_parameters", "rope_scaling"
BY_FOLDER = "has no option for this. Serve the folder that extend writes"
NESTED_SGLANG = "  # SGLang 0.5.23 or later; older versions replace the nested config"
TYPED = "  # needs transformers 5; older versions ignore rope_parameters"


def serving_folder(folder: str, to: int) -> dict[str, str]:
    """Map each server to a command for serving a folder that `extend` has written."""
    name = shlex.quote(folder)
    converted = f"python convert_hf_to_gguf.py {name}, then llama-server -m MODEL.gguf -c {to}"
    return {
        "vLLM": f"vllm serve {name} --max-model-len {to}",
        "SGLang": f"python -m sglang.launch_server --model-path {name} --context-length {to}",
        "llama.cpp": converted,
        "MLX": f"mlx_lm.load({folder!r})",
    }


def serving(
    model: str, before: dict[str, Any], after: dict[str, Any], spec: Spec, to: int
) -> dict[str, str]:
    """Return, for each server, a command line that extends the context of an unchanged model.

    A server without an option for this gets a sentence instead of a command.

    Parameters
    ----------
    model
        The folder or hub id of the model.
    before, after
        Its config, and the config that `extend` writes.
    spec
        The specification of `after`.
    to
        Tokens of the longest text.
    """
    name = shlex.quote(model)
    words = overrides(before, after, spec)
    depth = len(_place(after, spec))
    override = words and shlex.quote(json.dumps(words))
    vllm = f"vllm serve {name} --hf-overrides {override} --max-model-len {to}"
    sglang = (
        f"python -m sglang.launch_server --model-path {name}"
        f" --json-model-override-args {override} --context-length {to}"
    )
    changed = {key: value for key, value in after.items() if before.get(key) != value}
    typed = len(spec.text_stack.rotary) > 1
    needs = NESTED_SGLANG * (depth == 1) or TYPED * typed
    return {
        "vLLM": vllm + TYPED * typed if words else BY_FOLDER,
        "SGLang": sglang + needs if words and depth < 2 else BY_FOLDER,
        "llama.cpp": _llama_cpp(spec.text_stack, to),
        "MLX": BY_FOLDER
        if depth
        else f"mlx_lm.load({model!r}, model_config=json.loads({json.dumps(changed)!r}))",
    }


def overrides(before: dict[str, Any], after: dict[str, Any], spec: Spec) -> dict[str, Any] | None:
    """Return config attributes that make a server treat the old config like the new one.

    None if they are unknown.

    `rope_parameters` is complete. If the config has the spelling of transformers 4 and all layers
    have the same rotation, that spelling is included too.
    """
    place, main = _place(after, spec), spec.text_stack
    old, new = nested_config(before, place), nested_config(after, place)
    settings = _rope_parameters(main, _stated(new), _stated(old))
    if settings is None:
        return None
    attributes: dict[str, Any] = {}
    if not new.get("rope_parameters") and "rope_type" in settings:
        attributes["rope_theta"] = settings["rope_theta"]
        if new.get("rope_scaling"):
            attributes["rope_scaling"] = settings
    attributes["rope_parameters"] = settings
    length = "max_position_embeddings"
    entry = family(main.model)
    own = entry.keys.get(length, length) if entry else length
    lengths = {key: new[key] for key in dict.fromkeys((own, length)) if new.get(key) is not None}
    attributes |= lengths
    for name in reversed(place):
        attributes = {name: attributes}
    return attributes


def _place(config: Mapping[str, Any], spec: Spec) -> tuple[str, ...]:
    """Return the path of the nested config that holds the rope settings; () if at the top level."""
    place = []
    for name in spec.text_keys:
        if not isinstance(config.get(name), dict):
            break
        place.append(name)
        config = config[name]
    return tuple(place)


def nested_config(config: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    """Return the nested config at the path `place`; keys that the config lacks are skipped."""
    for name in place:
        config = config.get(name, config)
    return config


def _stated(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rope settings under "rope_parameters" or "rope_scaling"; {} if missing."""
    return next((config[key] for key in SPELLINGS if config.get(key)), {})


def _rope_parameters(
    main: Spec, stated: Mapping[str, Any], old: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return `rope_parameters` for transformers 5 with all settings, by layer type if necessary.

    None if layers have different rotations and their types are unknown.
    """
    entry = family(main.model)
    rules, labels = (entry.rope, entry.labels) if entry else ({}, {})
    nested = bool(stated) and all(isinstance(x, dict) or x is None for x in stated.values())
    if not nested and not rules:
        return _complete(main.rotary[0], stated, old) if len(main.rotary) == 1 else None
    turns = {
        labels.get(layer.kind, layer.kind): layer.encoding
        for layer in main.layers
        if isinstance(layer.encoding, Rotary)
    }
    settings: dict[str, Any] = {}
    for label, turn in turns.items():
        rule = rules.get(label, {})
        own = stated.get(label) if nested else stated if rule.get("scaled", True) else None
        was = old.get(label) if nested else None
        settings[label] = _complete(turn, own or {}, was or {})
        if "gain" in rule and turn.method != "default":
            settings[label].setdefault("attention_factor", rule["gain"])
    return settings if {*turns} >= {*stated} or not nested else {**stated, **settings}


def _complete(turn: Rotary, stated: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rope settings of one RoPE, with the values that a config may leave out."""
    settings = {"rope_type": turn.method, "rope_theta": turn.base}
    settings |= {key: x for key, x in stated.items() if key not in (*settings, "type")}
    if "type" in stated:
        settings["type"] = turn.method
    if turn.method == "proportional":
        settings.setdefault("partial_rotary_factor", turn.share)
    elif turn.turned < turn.dim and not turn.trailing:
        share = turn.turned / turn.dim
        # transformers rounds down to whole channels
        exact = share if int(turn.dim * share) == turn.turned else (turn.turned + 0.5) / turn.dim
        settings.setdefault("partial_rotary_factor", exact)
    if turn.method in ("yarn", "llama3", "longrope"):
        settings.setdefault("original_max_position_embeddings", turn.trained)
    # A server that merges the settings would keep the old gain
    if "attention_factor" in old:
        settings.setdefault("attention_factor", turn.gain)
    return settings


def gguf_keys(architecture: str, spec: Spec, to: int) -> dict[str, Any]:
    """Return the rope settings and the length `to` as GGUF keys, as far as GGUF supports them."""
    turn = spec.text_stack.global_rotary[0]
    keys: dict[str, Any] = {"context_length": to, "rope.freq_base": turn.base}
    if turn.method in ("linear", "yarn"):
        keys |= {"rope.scaling.type": turn.method, "rope.scaling.factor": turn.factor}
    if turn.method == "yarn":
        keys["rope.scaling.original_context_length"] = turn.trained
        keys |= {f"rope.scaling.yarn_{key}": value for key, value in _tuned(turn).items()}
    return {f"{architecture}.{key}": value for key, value in keys.items()}


def cache_bytes(spec: Spec, tokens: int) -> int:
    """Return the size in bytes of the key-value cache for a text of `tokens` tokens, in 16 bits.

    A layer with a window caches at most the window, a layer without attention nothing.
    """
    main, total = spec.text_stack, 0
    for layer in main.layers:
        turn = layer.encoding
        if layer.attends and isinstance(turn, Rotary):
            kept = min(tokens, layer.window or tokens)
            total += 2 * main.groups * turn.dim * kept * BITS // 8
    return total


def _llama_cpp(main: Spec, to: int) -> str:
    """Return the command for llama.cpp, whose options apply to the layers without a window."""
    turn, line = main.global_rotary[0], f"llama-server -m MODEL.gguf -c {to}"
    if len(main.rotary) > 1:
        return BY_FOLDER
    match turn.method:
        case "default":
            return f"{line} --rope-scaling none --rope-freq-base {turn.base:.10g}"
        case "linear":
            return f"{line} --rope-scaling linear --rope-scale {turn.factor:.10g}"
        case "yarn":
            scale = f"--rope-scaling yarn --rope-scale {turn.factor:.10g}"
            tuned = (f"--yarn-{key.replace('_', '-')} {x:g}" for key, x in _tuned(turn).items())
            return " ".join((line, scale, f"--yarn-orig-ctx {turn.trained}", *tuned))
    return f"has no option for {turn.method}. Convert the folder that extend writes"


def _tuned(turn: Rotary) -> dict[str, float]:
    """Return the YaRN settings that differ from llama.cpp's defaults."""
    slow, fast = turn.ends
    values = {
        "beta_slow": slow,
        "beta_fast": fast,
        # llama.cpp multiplies this by YaRN's own gain
        "attn_factor": turn.gain / yarn_gain(turn.factor),
    }
    usual = {"beta_slow": 1.0, "beta_fast": 32.0, "attn_factor": 1.0}
    return {key: value for key, value in values.items() if not isclose(value, usual[key])}
