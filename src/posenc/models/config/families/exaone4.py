"""EXAONE 4: RoPE in sliding-window layers only; in all if `sliding_window` is missing."""

from posenc.models.config.layers import FULL, Config, Layer, drop_encodings, stack

MODELS = "exaone4 exaone_moe kolibri1"


def layers(config: Config) -> list[Layer]:
    fixed = config.family.name == "kolibri1"
    steps = 5 if fixed else config.period("sliding_window_pattern", 4)
    slides = config.value("sliding_window")
    return drop_encodings(
        stack(config, config.every(steps)), lambda i, layer: slides and layer.kind == FULL
    )
