"""RecurrentGemma: every third layer has a sliding window; the others are recurrent."""

from posenc.models.config.layers import LINEAR, SLIDING, Config, Layer, hybrid

RENAMED = {"recurrent": LINEAR, "attention": SLIDING}


def layers(config: Config) -> list[Layer]:
    stated = config.words("block_types")
    # `block_types` is a pattern to repeat, unlike `layer_types`, which lists every layer
    kinds = config.repeated(stated or ("recurrent", "recurrent", "attention"))
    return hybrid(config, [RENAMED.get(kind, kind) for kind in kinds], (SLIDING,), renamed=RENAMED)
