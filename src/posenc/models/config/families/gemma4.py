"""Gemma 4: every sixth and the last layer have full attention and wider heads; softmax scale 1."""

from typing import Any

from posenc.models.config.layers import FULL, SLIDING, Config, Layer
from posenc.models.config.rope_settings import rotations

MODELS = "gemma4_text gemma4_unified_text diffusion_gemma_text"
FACTS = {"defaults": {"global_head_dim": 512}}
BLOCK = "is bidirectional within the block that its decoder fills in"


def layers(config: Config) -> list[Layer]:
    both_ways = config.values.get("use_bidirectional_attention") == "all"
    size = config.window()
    if config.family.name == "diffusion_gemma_text":
        if both_ways:
            why = "no file states which of its two stacks is bidirectional"
            config.refuse("model_type", config.family.name, why)
        return wide_heads(config, 6, size, unsupported=BLOCK)
    if both_ways:
        return wide_heads(config, 6, size and size // 2 + 2, causal=False)
    return wide_heads(config, 6, size)


def wide_heads(config: Config, steps: int, size: int | None, **more: Any) -> list[Layer]:
    """Return layers with wider heads for full attention, which the last layer always has."""
    rope = rotations(config, wide={FULL: "global_head_dim"})
    kinds = config.types(config.every(steps))
    kinds, windows = [*kinds[:-1], FULL][: len(kinds)], {SLIDING: size}
    return [Layer(rope(x), x, window=windows.get(x), scale=1.0, **more) for x in kinds]
