"""Llama 4: every fourth layer has no encoding and sees all; the others attend within chunks."""

from dataclasses import replace

from posenc.models.config.families.smollm3 import without_encoding
from posenc.models.config.layers import FULL, SLIDING, USUAL, Config, Layer, stack
from posenc.models.config.spec import Sharpened

MODELS = "llama4_text"
CHUNKED = "chunked_attention"


def layers(config: Config) -> list[Layer]:
    nope, sharpened = without_encoding(config), temperature(config)
    usual = [FULL if bare else CHUNKED for bare in nope]
    windows = {CHUNKED: config.window("attention_chunk_size"), SLIDING: config.window()}
    layers = stack(config, usual, (*USUAL, CHUNKED), windows=windows)
    return [
        replace(layer, encoding=None, temperature=sharpened) if bare else layer
        for layer, bare in zip(layers, nope, strict=True)
    ]


def temperature(config: Config) -> Sharpened | None:
    """Queries of layers without encoding grow with their position."""
    if not config.value("attn_temperature_tuning"):
        return None
    steps, strength = config.count("floor_scale"), config.number("attn_scale")
    return Sharpened(steps, strength, start=1) if steps and strength else None
