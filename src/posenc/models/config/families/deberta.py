"""DeBERTa: content-to-position and position-to-content scores, and an optional position table."""

from posenc.models.config.fields import head_dim
from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import Disentangled, Table
from posenc.models.config.tables import learned

MODELS = "deberta deberta-v2"


def layers(config: Config) -> list[Layer]:
    encoding = _disentangled(config) if config.value("relative_attention") else None
    return stack(config, encode=lambda kind: encoding)


def embedding(config: Config) -> Table | None:
    return learned(config) if config.value("position_biased_input") in (None, True) else None


def _disentangled(config: Config) -> Disentangled | None:
    heads, dim = config.count("num_attention_heads"), head_dim(config)
    rows = config.count("max_position_embeddings")
    if heads is None or rows is None:
        config.fail("max_position_embeddings", "is missing, or the number of heads is missing")
    terms = config.value("pos_att_type")
    terms = terms.split("|") if isinstance(terms, str) else terms or []
    if not isinstance(terms, list) or any(term not in ("c2p", "p2c") for term in terms):
        config.refuse("pos_att_type", config.family.name, "it has other terms than c2p and p2c")
    if not terms:
        return None
    reach, buckets = config.value("max_relative_positions"), config.value("position_buckets")
    reach = rows if not isinstance(reach, int) or reach < 1 else reach
    buckets = buckets if isinstance(buckets, int) and buckets > 0 else 0
    return Disentangled(dim, heads, dim * heads, reach, buckets, tuple(dict.fromkeys(terms)))
