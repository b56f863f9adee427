"""Mistral 4: DeepSeek's latent attention with the query scale of Ministral 3."""

from posenc.models.config.families.deepseek_v3 import FACTS as FACTS
from posenc.models.config.families.ministral3 import layers as layers
