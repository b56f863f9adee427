"""TrOCR: a learned table, or the sinusoids of fairseq."""

from posenc.models.config import tables
from posenc.models.config.layers import Config
from posenc.models.config.spec import Table, Waves

FAIRSEQ = {"halves": True, "base": 10_000.0, "step": "d/2 − 1"}


def embedding(config: Config) -> Table | Waves | None:
    if config.flag("use_learned_position_embeddings") is not False:
        return tables.embedding(config)
    family = config.family.replaced(waves=FAIRSEQ, offset="pad + 1")
    return tables.sinusoidal(Config(config.values, config.file, config.path, family))
