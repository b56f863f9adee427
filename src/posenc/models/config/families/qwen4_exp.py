"""Qwen4: Qwen3.5 with an indexer that selects the keys for each query."""

from posenc.models.config.families.qwen3_5 import SECTIONS
from posenc.models.config.layers import FULL, INDEXED, LINEAR, Config, Layer, hybrid
from posenc.models.config.rope_settings import rotations

MODELS = "qwen4_exp_text"


def layers(config: Config) -> list[Layer]:
    usual = config.every(config.period("full_attention_interval", 4), INDEXED, LINEAR)
    rope = rotations(config, SECTIONS, interleaved=True)
    return hybrid(config, usual, (INDEXED,), encode=rope, renamed={FULL: INDEXED})
