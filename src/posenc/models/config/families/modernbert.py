"""ModernBERT: one layer of three sees all; the others a window to both sides."""

from posenc.models.config.layers import Config, Layer, stack, with_windows

MODELS = "modernbert modernbert-decoder"


def layers(config: Config) -> list[Layer]:
    kinds = config.types(config.every(config.period("global_attn_every_n_layers", 3), at=0))
    if config.stated("sliding_window") is not None:
        size = config.window()
    else:
        both = config.window("local_attention")
        size = both and both // 2
    ends = 1 if config.family.name == "modernbert" else 0  # which its window includes
    return with_windows(stack(config, kinds), size and size + ends)
