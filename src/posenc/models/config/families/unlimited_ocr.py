"""Unlimited OCR: queries see the whole prompt, and only the last generated tokens."""

from posenc.models.config.layers import USUAL, Config, Layer, stack

MODELS = "unlimited_ocr_text"
KIND = "reference_sliding_attention"


def layers(config: Config) -> list[Layer]:
    config.require("is_causal", True)
    return stack(config, config.repeated([KIND]), (*USUAL, KIND))
