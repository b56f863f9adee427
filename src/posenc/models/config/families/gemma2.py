"""Gemma 2: alternating sliding and full attention, a softcap, and a configured softmax scale."""

from posenc.models.config.layers import Config, Layer, stack

MODELS = "gemma2 t5_gemma_module vaultgemma"


def layers(config: Config) -> list[Layer]:
    scale = config.inverse_root("query_pre_attn_scalar")
    softcap = config.number("attn_logit_softcapping")
    return stack(config, config.every(2), scale=scale, softcap=softcap)
