"""Command A MoE: full layers are not rotated, unless they are dense and so is their pattern."""

from posenc.models.config.layers import FULL, SLIDING, Config, Layer, bare, stack


def layers(config: Config) -> list[Layer]:
    first = min(config.count("first_k_dense_replace", least=0) or 0, config.depth())
    pattern = config.count("prefix_dense_sliding_window_pattern")
    usual = _turns(first, pattern or 1)
    usual += _turns(config.depth() - first, config.period("sliding_window_pattern", 4))
    rotated = _dense(config, first) if pattern in (None, 1) else ()
    return bare(stack(config, usual), lambda i, layer: layer.kind == FULL and i not in rotated)


def _turns(count: int, period: int) -> list[str]:
    """The last of each period sees all."""
    return [SLIDING if (i + 1) % period else FULL for i in range(count)]


def _dense(config: Config, first: int) -> set[int]:
    """The layers with a dense network after their attention."""
    kinds, count = config.words("mlp_layer_types"), config.depth()
    if kinds is None:
        return {*range(first)}
    if len(kinds) != count:
        config.fail("mlp_layer_types", f"must name each of {count} layers, has", len(kinds))
    return {i for i, kind in enumerate(kinds) if kind == "dense"}
