"""T5: a learned bias for each bucket of distances; the softmax scale is 1."""

from typing import Any

from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import Buckets

MODELS = "t5 mt5 umt5 switch_transformers pop2piano"
FACTS = {
    "stacks": {"encoder": {}, "decoder": {"keys": {"num_hidden_layers": "num_decoder_layers"}}}
}
LONGEST = 2**24  # limit of `relative_attention_max_distance`, in tokens


def layers(config: Config) -> list[Layer]:
    return with_buckets(config, scale=1.0)


def with_buckets(config: Config, **more: Any) -> list[Layer]:
    """Return layers with T5's relative bias; it is bidirectional unless the layers are causal."""
    heads = config.count("num_attention_heads")
    buckets = config.count("relative_attention_num_buckets", least=2, most=LONGEST)
    reach = config.count("relative_attention_max_distance", most=LONGEST)
    if heads is None or buckets is None or reach is None:
        config.fail(
            "relative_attention_num_buckets", "is missing, or the number of heads is missing"
        )
    both = not config.family.causal
    side = buckets // 2 if both else buckets
    if side < 2 or reach <= side // 2:
        config.fail(
            "relative_attention_max_distance",
            f"must be greater than {side // 2}, the number of distances with their own bucket",
            reach,
        )
    return stack(config, encode=lambda kind: Buckets(heads, buckets, reach, both), **more)
