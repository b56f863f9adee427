"""Qwen3.5: Qwen3-Next with M-RoPE over time, height and width, in interleaved channels."""

from posenc.models.config.families import qwen3_next
from posenc.models.config.layers import Config, Layer
from posenc.models.config.rope_settings import rotations

MODELS = "qwen3_5_text qwen3_5_moe_text"
SECTIONS = (11, 11, 10)


def layers(config: Config) -> list[Layer]:
    return qwen3_next.layers(config, rotations(config, SECTIONS, interleaved=True))
