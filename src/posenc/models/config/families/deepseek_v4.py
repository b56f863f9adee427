"""DeepSeek V4: sliding windows; most layers also have compressed keys with another RoPE base."""

from typing import Any

from posenc.models.config.layers import SLIDING, USUAL, Config, Layer, stack

SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
RATIOS = {0: SLIDING, 4: SPARSE, 128: HEAVY}
FACTS = {
    "place": "trailing",
    "rope": {
        "main": {"theta": "rope_theta", "scaled": False},
        "compress": {"theta": "compress_rope_theta", "gain": 1.0},
    },
    "labels": {SLIDING: "main", SPARSE: "compress", HEAVY: "compress"},
}


def standard_keys(config: Config) -> dict[str, Any]:
    """Return the config with `qk_rope_head_dim` converted to `partial_rotary_factor`."""
    values, turned = dict(config.values), config.count("qk_rope_head_dim")
    dim = values.get("head_dim") or config.defaults["head_dim"]
    if turned and isinstance(dim, int) and values.get("partial_rotary_factor") is None:
        values["partial_rotary_factor"] = turned / dim
    values.pop("qk_rope_head_dim", None)
    return values


def layers(config: Config) -> list[Layer]:
    known, windows = (*USUAL, SPARSE, HEAVY), dict.fromkeys(FACTS["labels"], config.window())
    return stack(config, _by_ratio(config), known, windows=windows, trimmed=True, sinks=True)


def _by_ratio(config: Config) -> list[str]:
    """Return the type of each layer, by the layer's entry in `compress_ratios`."""
    count, ratios = config.depth(), config.counts("compress_ratios")
    if ratios is None:
        return [HEAVY, HEAVY, *config.repeated((HEAVY, SPARSE))[2:]][:count]
    if unknown := [ratio for ratio in ratios if ratio not in RATIOS]:
        allowed = ", ".join(map(str, RATIOS))
        config.fail("compress_ratios", "must contain only known ratios", unknown[0], allowed)
    if len(ratios) < count:
        config.fail("compress_ratios", f"must have a ratio for all {count} layers", len(ratios))
    return [RATIOS[ratio] for ratio in ratios[:count]]
