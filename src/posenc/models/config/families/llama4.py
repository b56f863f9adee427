"""Llama 4: every fourth layer has full attention without RoPE; the others attend in chunks."""

from dataclasses import replace

from posenc.models.config.families.smollm3 import without_encoding
from posenc.models.config.layers import FULL, SLIDING, USUAL, Config, Layer, stack
from posenc.models.config.spec import QueryScale

MODELS = "llama4_text"
CHUNKED = "chunked_attention"


def layers(config: Config) -> list[Layer]:
    nope, scale = without_encoding(config), temperature(config)
    usual = [FULL if without else CHUNKED for without in nope]
    windows = {CHUNKED: config.window("attention_chunk_size"), SLIDING: config.window()}
    layers = stack(config, usual, (*USUAL, CHUNKED), windows=windows)
    return [
        replace(layer, encoding=None, temperature=scale) if without else layer
        for layer, without in zip(layers, nope, strict=True)
    ]


def temperature(config: Config) -> QueryScale | None:
    """Return the query scale, growing with position, for layers without RoPE; None if unused."""
    if not config.value("attn_temperature_tuning"):
        return None
    steps, strength = config.count("floor_scale"), config.number("attn_scale")
    return QueryScale(steps, strength, start=1) if steps and strength else None
