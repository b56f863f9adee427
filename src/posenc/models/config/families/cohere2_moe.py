"""Command A MoE: full-attention layers have no RoPE, unless their MLP is dense.

Dense layers are rotated if `prefix_dense_sliding_window_pattern` is missing or 1.
"""

from posenc.models.config.layers import FULL, SLIDING, Config, Layer, drop_encodings, stack


def layers(config: Config) -> list[Layer]:
    first = min(config.count("first_k_dense_replace", least=0) or 0, config.depth())
    pattern = config.count("prefix_dense_sliding_window_pattern")
    usual = _periodic_types(first, pattern or 1)
    usual += _periodic_types(config.depth() - first, config.period("sliding_window_pattern", 4))
    rotated = _dense(config, first) if pattern in (None, 1) else ()
    return drop_encodings(
        stack(config, usual), lambda i, layer: layer.kind == FULL and i not in rotated
    )


def _periodic_types(count: int, period: int) -> list[str]:
    """Return `count` layer types: full attention in every `period`-th layer, otherwise sliding."""
    return [SLIDING if (i + 1) % period else FULL for i in range(count)]


def _dense(config: Config, first: int) -> set[int]:
    """Return the indices of layers with a dense MLP instead of experts."""
    kinds, count = config.words("mlp_layer_types"), config.depth()
    if kinds is None:
        return {*range(first)}
    if len(kinds) != count:
        config.fail("mlp_layer_types", f"must have {count} entries, one per layer", len(kinds))
    return {i for i, kind in enumerate(kinds) if kind == "dense"}
