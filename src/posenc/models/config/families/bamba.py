"""Bamba: attention in the layers that `attn_layer_indices` lists; the others are recurrent."""

from posenc.models.config.layers import FULL, LINEAR, Config, Layer, hybrid

FACTS = {"ignored": ["attn_rotary_emb"]}


def layers(config: Config) -> list[Layer]:
    attends = config.counts("attn_layer_indices") or ()
    return hybrid(config, [FULL if i in attends else LINEAR for i in range(config.depth())])
