"""Read any Hugging Face config: what the model does about positions, layer by layer."""

from posenc.models.config.parse import specify as specify
from posenc.models.config.source import read as read
