"""RecurrentGemma: every third layer slides; the others are recurrent."""

from posenc.models.config.layers import LINEAR, SLIDING, Config, Layer, hybrid

RENAMED = {"recurrent": LINEAR, "attention": SLIDING}


def layers(config: Config) -> list[Layer]:
    stated = config.words("block_types")
    # `block_types` is repeated; unlike `layer_types`, which names every layer
    kinds = config.repeated(stated or ("recurrent", "recurrent", "attention"))
    return hybrid(config, [RENAMED.get(kind, kind) for kind in kinds], (SLIDING,), renamed=RENAMED)
