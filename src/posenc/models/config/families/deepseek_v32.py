"""DeepSeek V3.2: V3 with an indexer that selects the keys for each query."""

from typing import Any

from posenc.models.config.families.deepseek_v3 import FACTS as FACTS
from posenc.models.config.families.deepseek_v3 import one_latent
from posenc.models.config.layers import INDEXED, USUAL, Config, Layer, stack

MODELS = "axk2 deepseek_v32 glm_moe_dsa"


def standard_keys(config: Config) -> dict[str, Any]:
    glm = config.family.name == "glm_moe_dsa"
    return config.without_constants(rope_interleave=True) if glm else dict(config.values)


def layers(config: Config) -> list[Layer]:
    one_latent(config)
    return indexed(config)


def indexed(config: Config, **more: Any) -> list[Layer]:
    return stack(config, config.repeated([INDEXED]), (*USUAL, INDEXED), **more)
