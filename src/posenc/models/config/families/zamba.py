"""Zamba: recurrent layers; every sixth also has shared attention without positional encoding."""

from posenc.models.config.fields import head_dim
from posenc.models.config.layers import LINEAR, Config, Layer, hybrid

SHARED = "hybrid"


def layers(config: Config) -> list[Layer]:
    config.require("attn_layer_offset", 4)
    usual = [LINEAR, LINEAR, SHARED, *config.every(6, SHARED, LINEAR, at=1)[3:]]
    return hybrid(config, usual[: config.depth()], (SHARED,), scale=half_width(config))


def half_width(config: Config) -> float:
    """Return the softmax scale 1/√(channels / 2).

    The heads read the hidden states and the embeddings, concatenated.
    """
    dim = config.number("attention_head_dim")
    return head_dim(config) ** -0.5 if dim is None else (dim * 0.5) ** -0.5
