"""Falcon: rotated, or with ALiBi's slopes, divided by √channels and rounded to bfloat16."""

from posenc.models.config.families.bloom import with_slopes
from posenc.models.config.fields import head_dim
from posenc.models.config.layers import Config, Layer, stack

FACTS = {"keys": {"num_key_value_heads": "num_kv_heads"}}


def layers(config: Config) -> list[Layer]:
    if not config.flag("alibi"):
        return stack(config)
    layers = with_slopes(config, head_dim(config) ** -0.5, rounded=True)
    config.notes.append(
        "slopes times positions are rounded to bfloat16, as its code does: neighbours past"
        " 256 tokens into a text are told apart less and less"
    )
    return layers
