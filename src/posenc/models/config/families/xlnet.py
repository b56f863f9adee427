"""XLNet: Transformer-XL's relative scores, with projected sinusoids and two learned biases."""

from posenc.models.config.fields import head_dim
from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import Projected

FACTS = {"keys": {"head_dim": "d_head"}}


def layers(config: Config) -> list[Layer]:
    config.require("clamp_len", -1)
    config.require("bi_data", False)
    layers = with_sines(config, halves=True, causal=config.value("attn_type") == "uni")
    config.notes.append("with token_type_ids it also adds a bias between different segments")
    return layers


def with_sines(config: Config, halves: bool, causal: bool = True) -> list[Layer]:
    """Return layers with Transformer-XL's relative scores.

    `halves`: True puts all sines before all cosines; False alternates them.
    """
    heads, width = config.count("num_attention_heads"), config.count("hidden_size")
    if heads is None or width is None:
        config.fail("hidden_size", "is missing, or the number of heads is missing")
    encoding = Projected(head_dim(config), heads, width, halves)
    return stack(config, encode=lambda kind: encoding, causal=causal)
