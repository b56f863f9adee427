"""Unlimited OCR: each query sees the whole prompt and the most recently generated tokens."""

from posenc.models.config.layers import USUAL, Config, Layer, stack

MODELS = "unlimited_ocr_text"
KIND = "reference_sliding_attention"


def layers(config: Config) -> list[Layer]:
    config.require("is_causal", True)
    return stack(config, config.repeated([KIND]), (*USUAL, KIND))
