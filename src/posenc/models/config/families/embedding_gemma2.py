"""EmbeddingGemma 2: Gemma 4 with windows of `sliding_window` tokens on each side of a query."""

from posenc.models.config.families.gemma4 import FACTS as FACTS
from posenc.models.config.families.gemma4 import wide_heads
from posenc.models.config.layers import Config, Layer

MODELS = "embedding_gemma2_text"


def layers(config: Config) -> list[Layer]:
    steps = config.period("sliding_window_pattern", 6)
    return wide_heads(config, steps, config.window(ends=1))
