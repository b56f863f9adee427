"""ESM: RoPE or a learned table, depending on the config's `position_embedding_type`."""

from posenc.models.config import tables
from posenc.models.config.layers import Config, Layer, no_encoding, stack
from posenc.models.config.spec import Table

FACTS = {"layout": "half", "offset": "pad + 1"}
SHAW = (
    "the file does not determine its encoding: transformers 4 added learned relative vectors to"
    " its keys (Shaw), transformers 5 runs it without any positions"
)


def layers(config: Config) -> list[Layer]:
    return stack(config, encode=None if _kind(config) == "rotary" else no_encoding)


def embedding(config: Config) -> Table | None:
    return tables.learned(config) if _kind(config) == "absolute" else None


def _kind(config: Config) -> str:
    kind = config.value("position_embedding_type")
    if kind not in ("absolute", "rotary"):
        config.refuse("model_type", config.family.name, SHAW)
    return kind
