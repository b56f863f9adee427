"""DeepSeek V4: layers see a window, and most of them compressed keys beside it, by another base."""

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
BEYOND = "turns values as keys and its output back, and sees compressed keys beside a window"


def usual(config: Config) -> dict[str, Any]:
    """The file states how many channels of a head are rotated, and not their share."""
    values, turned = dict(config.values), config.count("qk_rope_head_dim")
    dim = values.get("head_dim") or config.defaults["head_dim"]
    if turned and isinstance(dim, int) and values.get("partial_rotary_factor") is None:
        values["partial_rotary_factor"] = turned / dim
    values.pop("qk_rope_head_dim", None)
    return values


def layers(config: Config) -> list[Layer]:
    known, windows = (*USUAL, SPARSE, HEAVY), dict.fromkeys(FACTS["labels"], config.window())
    more = {"sinks": True, "beyond": BEYOND}
    return stack(config, _by_ratio(config), known, windows=windows, trimmed=True, **more)


def _by_ratio(config: Config) -> list[str]:
    """The type of each layer by how many keys it compresses into one."""
    count, ratios = config.depth(), config.counts("compress_ratios")
    if ratios is None:
        return [HEAVY, HEAVY, *config.repeated((HEAVY, SPARSE))[2:]][:count]
    if unknown := [ratio for ratio in ratios if ratio not in RATIOS]:
        allowed = ", ".join(map(str, RATIOS))
        config.fail("compress_ratios", "must hold numbers of types of layers", unknown[0], allowed)
    if len(ratios) < count:
        config.fail("compress_ratios", f"must name the type of each of {count} layers", len(ratios))
    return [RATIOS[ratio] for ratio in ratios[:count]]
