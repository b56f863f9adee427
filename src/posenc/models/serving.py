"""Say how a stretched model is served: flags of servers, keys of a GGUF file, bytes of its cache.

The flags are for the model as it was, whose config.json is left alone: `serving(before, after, …)`
takes what `extend` changed in it. What a server cannot be told by a flag is said in its place.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from math import isclose
from typing import Any

from posenc.encodings.rotary.theta import yarn_gain
from posenc.models.config.spec import Rotary, Spec

BITS = 16  # bits of a cached number, as servers keep them
SETTINGS = ("rope_parameters", "rope_scaling", "rope_theta", "max_position_embeddings")


def serving(model: str, config: Mapping[str, Any], spec: Spec, to: int) -> dict[str, str]:
    """Map each server to the line that serves `model` for texts of `to` tokens.

    `config` and `spec` are those for longer texts, as `extended` gives them.
    """
    inner: Any = config
    for name in spec.main_place:
        inner = inner[name]
    changed = {key: inner[key] for key in SETTINGS if inner.get(key) is not None}
    told: Any = changed
    for name in reversed(spec.main_place):
        told = {name: told}
    words, name = json.dumps(told), shlex.quote(model)
    override = shlex.quote(words)
    return {
        "vLLM": f"vllm serve {name} --hf-overrides {override} --max-model-len {to}",
        "SGLang": f"python -m sglang.launch_server --model-path {name}"
        f" --json-model-override-args {override} --context-length {to}",
        "llama.cpp": _llama_cpp(spec.main.far_seeing[0], to),
        "MLX": f"mlx_lm.load({model!r}, model_config=json.loads({words!r}))",
    }


def gguf_keys(architecture: str, spec: Spec, to: int) -> dict[str, Any]:
    """The keys of a GGUF file that say the same, where its metadata can."""
    turn = spec.main.far_seeing[0]
    keys: dict[str, Any] = {"context_length": to, "rope.freq_base": turn.base}
    if turn.method in ("linear", "yarn"):
        keys |= {"rope.scaling.type": turn.method, "rope.scaling.factor": turn.factor}
    if turn.method == "yarn":
        keys["rope.scaling.original_context_length"] = turn.trained
        keys |= {f"rope.scaling.yarn_{key}": value for key, value in _tuned(turn).items()}
    return {f"{architecture}.{key}": value for key, value in keys.items()}


def cache_bytes(spec: Spec, tokens: int) -> int:
    """Bytes of the cached keys and values of one text of `tokens`, in 16 bits.

    A layer with a window keeps that many; one that does not attend keeps none of these.
    """
    main, total = spec.main, 0
    for layer in main.layers:
        turn = layer.encoding
        if layer.attends and isinstance(turn, Rotary):
            kept = min(tokens, layer.window or tokens)
            total += 2 * main.groups * turn.dim * kept * BITS // 8
    return total


def _llama_cpp(turn: Rotary, to: int) -> str:
    """The flags of llama.cpp, which takes the context as -c."""
    line = f"llama-server -m MODEL.gguf -c {to}"
    match turn.method:
        case "default":
            return f"{line} --rope-scaling none --rope-freq-base {turn.base:.10g}"
        case "linear":
            return f"{line} --rope-scaling linear --rope-scale {turn.factor:g}"
        case "yarn":
            scale = f"--rope-scaling yarn --rope-scale {turn.factor:g}"
            tuned = (f"--yarn-{key.replace('_', '-')} {x:g}" for key, x in _tuned(turn).items())
            return " ".join((line, scale, f"--yarn-orig-ctx {turn.trained}", *tuned))
    return f"has no flag for {turn.method}: convert the extended folder, whose config says it"


def _tuned(turn: Rotary) -> dict[str, float]:
    """What of a YaRN is not as llama.cpp takes it; it multiplies the gain by that of the factor."""
    slow, fast = turn.ends
    values = {
        "beta_slow": slow,
        "beta_fast": fast,
        "attn_factor": turn.gain / yarn_gain(turn.factor),
    }
    usual = {"beta_slow": 1.0, "beta_fast": 32.0, "attn_factor": 1.0}
    return {key: value for key, value in values.items() if not isclose(value, usual[key])}
