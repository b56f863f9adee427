"""List other values of each config key that concerns positions, for tests of config readers.

Keys are those of its class whose names speak of positions, windows, layers or scales, and those of
other classes that a reader might believe in: used by families.py and the tests.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import watched
from transformers import CONFIG_MAPPING

SPEAKS = re.compile(
    r"rope|rotary|posit|alibi|window|layer_types|block_type|attn_idx|attn_layer|pattern|period"
    r"|offset|interval|bidirec|causal|theta|relative|bucket|pos_att|attn_scale|scalar|temper|nope"
    r"|chunk|every|local|full_att|(^|_)pos(_|$)|interleav|attention_mult|scale_attn|sliding"
    r"|num_attention_heads|num_hidden_layers|^head_dim$|image_size|patch_size|attention_value_scale"
    r"|floor_scale|pad_token_id"
)
OTHER = re.compile(  # that have nothing to do with positions
    r"feed_forward|mlp|expert|moe|v_head_dim|mamba|linear_|layerscale|layer_scale|logit_scale|mtp"
    r"|conv|codec|codebook|tts|audio|duration|sparsity|post_norm|num_global|cross_layer|visual_pos"
)
BELIEVED: dict[str, Any] = {  # keys of some classes, tried on all that turn
    "rope_theta": 50_000.0,
    "partial_rotary_factor": 0.5,
    "rotary_dim": 16,
    "sliding_window": 5,
    "no_rope_layer_interval": 3,
    "rope_interleave": True,
    "alibi": True,
    "position_embedding_type": "absolute",
    "original_max_position_embeddings": 512,
}
OF_ALL: dict[str, Any] = {"is_causal": False}  # keys that no class states, and masks heed
WORDS: dict[str, list[Any]] = {
    "position_embedding_type": [
        *("absolute", "relative_key", "relative_key_query", "rope", "rotary", "alibi", "nope"),
        None,
    ],
    "pos_att_type": ["c2p", "p2c", ["c2p", "p2c"], "p2c|c2p"],
    "full_attn_idxs": [[1, 4], [0]],
    "sliding_window_pattern": [3, "LLG"],
    "max_window_layers": [0, 2],
}
OLD_WORDS = {  # types of layers → what older files call them
    "full_attention": "attention",
    "linear_attention": "mamba",
    "indexed_attention": "deepseek_sparse_attention",
}
OF_WINDOWS: dict[str, Any] = {  # keys of Qwen2, tried on all that have windows
    "use_sliding_window": False,
    "max_window_layers": 2,
}
NEEDS: dict[str, dict[str, Any]] = {  # what must be set before a key counts
    "sliding_window": {"use_sliding_window": True},
    "max_window_layers": {"use_sliding_window": True, "sliding_window": 5},
    "layer_types": {"use_sliding_window": True},
    "pos_att_type": {"relative_attention": True},
    "max_relative_positions": {"relative_attention": True},
    "position_buckets": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "attn_scale": {"attn_temperature_tuning": True},
}
SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 512,
        "mscale": 0.7,
        "mscale_all_dim": 0.9,
    },
    {
        "rope_type": "llama3",
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
    {"rope_type": "proportional", "partial_rotary_factor": 0.5},
]


def stated(model_type: str) -> dict[str, tuple[Any, str]]:
    """Map each config key that concerns positions to (default, type as text)."""
    kind = CONFIG_MAPPING[model_type]
    return {
        f.name: (None if f.default is MISSING else f.default, str(f.type))
        for f in fields(kind)
        if SPEAKS.search(f.name) and not OTHER.search(f.name)
    }


def switches(model_type: str) -> Iterator[dict[str, Any]]:
    """Yield changes to a config: another value for one key, and other keys that it needs."""
    own = stated(model_type)
    config = watched.config(model_type)
    for key, value in BELIEVED.items():
        if key not in own and (
            key == "position_embedding_type" or hasattr(config, "rope_parameters")
        ):
            yield {key: value}
    for key, value in OF_ALL.items():
        if key not in own:
            yield {key: value}
    for key, value in OF_WINDOWS.items():
        if "sliding_window" in own and key not in own:
            yield {"sliding_window": 5, key: value}
    for key in own:
        if key != "pad_token_id" or not hasattr(config, "rope_parameters"):
            yield from of(model_type, key)


def of(model_type: str, key: str) -> Iterator[dict[str, Any]]:
    """Yield changes to one config key, each with the other keys that the value needs."""
    own = stated(model_type)
    default, kind = own[key]
    default = watched.MENDED.get(model_type, {}).get(key, default)
    needs = {k: v for k, v in NEEDS.get(key, {}).items() if k in own}
    for value in others(key, default, kind, watched.config(model_type)):
        yield needs | {key: value}


def others(key: str, default: Any, kind: str, config: Any) -> list[Any]:
    """Return values of a config key other than its default."""
    if key in WORDS:
        return [value for value in WORDS[key] if value != default]
    if key == "rope_parameters":
        return list(_rope(config))
    if key in ("layer_types", "layers_block_type"):
        return _types(getattr(config, key, None), config)
    if key == "no_rope_layers":
        return [[n % 2 for n in range(config.num_hidden_layers)]]
    if isinstance(default, bool) or (default is None and "bool" in kind):
        return [not default]
    if key == "num_hidden_layers":
        return [7, 18]
    if isinstance(default, int) and "num_" in key:
        return [max(1, default // 2), default * 2]
    if isinstance(default, int):
        null = [None] if key == "sliding_window" and "None" in kind else []
        return [*sorted({max(1, default // 2), default + 1} - {default}), *null]
    if isinstance(default, float):
        return [default / 2, default * 3]
    if isinstance(default, (list, tuple)):
        halved = [x // 2 if isinstance(x, int) else x for x in default]
        return [halved] if halved != list(default) else []
    if default is None and "int" in kind and "list" not in kind:
        return [6]
    if default is None and "float" in kind:
        return [0.5]
    return []


def _types(listed: list[str] | None, config: Any) -> list[Any]:
    """Return lists of layer types to try: all layers of one type, and alternating types."""
    count = config.num_hidden_layers
    kinds = sorted({*(listed or ()), "full_attention"})
    if len(kinds) == 1 and hasattr(config, "sliding_window"):
        kinds += ["sliding_attention"]
    turns = [[kinds[n % len(kinds)] for n in range(count)]] if len(kinds) > 1 else []
    lists = [*([kind] * count for kind in kinds), *turns]
    hybrid = {"linear_attention", "indexed_attention"} & {*kinds}  # others never had old words
    older = [[OLD_WORDS.get(kind, kind) for kind in kinds] for kinds in lists if hybrid]
    return [*lists, *(words for words in older if words not in lists)]


def _rope(config: Any) -> Iterator[dict[str, Any]]:
    usual = json.loads(json.dumps(getattr(config, "rope_parameters", None) or {}))
    nested = {label for label, own in usual.items() if isinstance(own, dict)}
    for label in sorted(nested) or [""]:
        own = usual[label] if label else usual
        for change in _changes(own, config):
            yield {**usual, label: change} if label else change


def _changes(own: dict[str, Any], config: Any) -> Iterator[dict[str, Any]]:
    base = {k: v for k, v in own.items() if k in ("rope_theta", "partial_rotary_factor")}
    sections = {k: v for k, v in own.items() if k.startswith("mrope")}
    yield {**own, "rope_theta": 50_000.0}
    yield {**own, "partial_rotary_factor": 0.5 if own.get("partial_rotary_factor") != 0.5 else 0.25}
    for value in (True, False):
        yield {**own, "mrope_interleaved": value}
    for scaling in SCALINGS:
        yield {**base, **sections, **scaling}
    for key, value in own.items():  # keys of its own
        if key in ("rope_theta", "partial_rotary_factor", "rope_type"):
            continue
        if isinstance(value, bool):
            yield {**own, key: not value}
        elif isinstance(value, (int, float)):
            yield {**own, key: value * 2}
        elif isinstance(value, list) and len(set(value)) > 1:
            yield {**own, key: value[::-1]}
