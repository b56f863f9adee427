"""MPT: ALiBi, with its settings in the nested object `attn_config`."""

from posenc.models.config.families.bloom import with_slopes
from posenc.models.config.layers import Config, Layer
from posenc.support.text import shown


def layers(config: Config) -> list[Layer]:
    settings = config.object("attn_config")
    if settings is None:
        return with_slopes(config)
    for key, usual in (("alibi", True), ("rope", False), ("learned_pos_emb", False)):
        if settings.stated(key) not in (None, usual):
            why = "MPT's own code uses this key, but transformers ignores it and adds slopes"
            settings.refuse(key, config.family.name, why)
    if (most := settings.stated("alibi_bias_max")) not in (None, 8):
        config.notes.append(
            f"{settings.at('alibi_bias_max')} is {shown(most)}, but slopes of 8 are used, as in"
            " transformers, which ignores it; MPT's own code does not"
        )
    return with_slopes(config, scale=settings.number("softmax_scale"))
