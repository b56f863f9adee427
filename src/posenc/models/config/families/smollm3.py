"""SmolLM3: every fourth layer has no RoPE, and a sliding window if `use_sliding_window` is true."""

from posenc.models.config.layers import FULL, SLIDING, Config, Layer, drop_encodings, stack


def layers(config: Config) -> list[Layer]:
    nope, size = without_encoding(config), config.count("sliding_window")
    slides = config.flag("use_sliding_window") and size
    usual = [SLIDING if slides and none else FULL for none in nope]
    # Layers listed as sliding have a window even if `use_sliding_window` is false
    return drop_encodings(stack(config, usual, windows={SLIDING: size}), lambda i, layer: nope[i])


def without_encoding(config: Config) -> list[bool]:
    """Return one flag for each layer: True if the layer has no RoPE (0 in `no_rope_layers`)."""
    if (listed := config.flags("no_rope_layers")) is not None:
        return [flag != 1 for flag in listed]
    period = config.count("no_rope_layer_interval") or 4
    return [(i + 1) % period == 0 for i in range(config.depth())]
