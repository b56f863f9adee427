"""BLOOM: ALiBi in all layers."""

from typing import Any

from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import Slopes
from posenc.models.config.tables import required


def layers(config: Config) -> list[Layer]:
    return with_slopes(config)


def with_slopes(
    config: Config, strength: float = 1.0, rounded: bool = False, **more: Any
) -> list[Layer]:
    """Return layers with ALiBi, whose slopes are multiplied by `strength`."""
    heads = required(config, "num_attention_heads")
    return stack(config, encode=lambda kind: Slopes(heads, strength, rounded), **more)
