"""EmbeddingGemma 2: Gemma 4 with bidirectional windows that include the tokens at both ends."""

from posenc.models.config.families.gemma4 import FACTS as FACTS
from posenc.models.config.families.gemma4 import wide_heads
from posenc.models.config.layers import Config, Layer

MODELS = "embedding_gemma2_text"


def layers(config: Config) -> list[Layer]:
    steps = config.period("sliding_window_pattern", 6)
    return wide_heads(config, steps, config.window(ends=1))
