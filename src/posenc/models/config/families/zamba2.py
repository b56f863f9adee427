"""Zamba 2: Zamba with RoPE if `use_mem_rope`; attention is twice as wide as the hidden states."""

from typing import Any

from posenc.models.config.families.zamba import SHARED, half_width
from posenc.models.config.layers import LINEAR, Config, Layer, hybrid, no_encoding

# The number of recurrent layers before each shared one
RUNS = (6, 5, 5, 5, 5, 5, 5, 4, 3)


def standard_keys(config: Config) -> dict[str, Any]:
    """Set a missing `attention_head_dim` to 2 · hidden_size / num_attention_heads."""
    values = dict(config.values)
    if not values.get("attention_head_dim"):
        width = config.count("hidden_size") or config.defaults["hidden_size"]
        heads = config.count("num_attention_heads") or config.defaults["num_attention_heads"]
        values["attention_head_dim"] = 2 * width // heads
    return values


def layers(config: Config) -> list[Layer]:
    encode = None if config.flag("use_mem_rope") else no_encoding
    count, usual = config.depth(), [kind for run in RUNS for kind in [*[LINEAR] * run, SHARED]]
    usual = [*usual, *[LINEAR] * count][:count]
    return hybrid(config, usual, (SHARED,), encode=encode, scale=half_width(config))
