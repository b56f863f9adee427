"""MPNet: T5's bias with a fixed number of buckets, and a learned position table."""

from typing import Any

from posenc.models.config.families.t5 import with_buckets
from posenc.models.config.layers import Config, Layer
from posenc.models.config.tables import learned as embedding

__all__ = ["embedding", "layers", "standard_keys"]
FACTS = {
    "offset": "pad + 1",
    "defaults": {"relative_attention_max_distance": 128},
    "ignored": ["relative_attention_max_distance"],
}


def standard_keys(config: Config) -> dict[str, Any]:
    return config.without_constants(relative_attention_num_buckets=32)


def layers(config: Config) -> list[Layer]:
    return with_buckets(config)
