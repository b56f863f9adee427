"""Falcon: RoPE, or ALiBi with a bias that is rounded to bfloat16 and divided by √head_dim."""

from posenc.models.config.families.bloom import with_slopes
from posenc.models.config.fields import head_dim
from posenc.models.config.layers import Config, Layer, stack

FACTS = {"keys": {"num_key_value_heads": "num_kv_heads"}}


def layers(config: Config) -> list[Layer]:
    if not config.flag("alibi"):
        return stack(config)
    layers = with_slopes(config, head_dim(config) ** -0.5, rounded=True)
    config.notes.append(
        "slopes times positions are rounded to bfloat16, as in its code: beyond 256 tokens the"
        " biases of neighbouring tokens increasingly coincide"
    )
    return layers
