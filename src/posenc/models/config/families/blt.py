"""BLT: a local encoder and decoder over bytes, and a transformer over patches of bytes."""

from typing import Any

from posenc.models.config.layers import Config, Fields, Layer, stack

MODELS = "blt blt_global_transformer blt_local_decoder blt_local_encoder"
LOCAL = ("encoder_config", "decoder_config")
WINDOW, LENGTH = "local_attention_window_len", 512  # key, and the default of the class
PATCHES = "its positions count patches of bytes, into which the patcher divides a text"


def layers(config: Config) -> list[Layer]:
    if config.family.name == "blt_global_transformer":
        config.notes.append(PATCHES)
    return stack(config)


def passed(config: Fields, part: str) -> dict[str, Any]:
    """Return values of the outer config that replace those in the nested config `part`."""
    if part not in LOCAL:
        return {}
    return {"sliding_window": config.values.get(WINDOW, LENGTH)}
