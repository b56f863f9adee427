"""InternViT: a learned table, unless `use_absolute_position_embeddings` is false."""

from posenc.models.config import tables
from posenc.models.config.layers import Config
from posenc.models.config.spec import Table, Waves

MODELS = "internvl_vision qianfan_ocr_vision"


def embedding(config: Config) -> Table | Waves | None:
    absent = config.flag("use_absolute_position_embeddings") is False
    return None if absent else tables.embedding(config)
