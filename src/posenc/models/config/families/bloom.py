"""BLOOM: ALiBi in all layers."""

from typing import Any

from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import Slopes


def layers(config: Config) -> list[Layer]:
    return with_slopes(config)


def with_slopes(
    config: Config, strength: float = 1.0, rounded: bool = False, **more: Any
) -> list[Layer]:
    """Return layers with ALiBi, whose slopes are multiplied by `strength`."""
    heads = config.count("num_attention_heads")
    if heads is None:
        config.fail("num_attention_heads", "is missing")
    return stack(config, encode=lambda kind: Slopes(heads, strength, rounded), **more)
