"""ModernBERT: every third layer has full attention; the others have a bidirectional window."""

from posenc.models.config.layers import SLIDING, Config, Layer, stack

MODELS = "modernbert modernbert-decoder"


def layers(config: Config) -> list[Layer]:
    usual = config.every(config.period("global_attn_every_n_layers", 3), at=0)
    # The encoder's window includes the tokens at both ends
    ends = 1 if config.family.name == "modernbert" else 0
    size = config.window(ends=ends)
    if config.stated("sliding_window") is None:
        both = config.window("local_attention")
        size = both and both // 2 + ends
    return stack(config, usual, windows={SLIDING: size})
