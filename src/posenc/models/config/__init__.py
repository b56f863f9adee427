"""Read Hugging Face configs and GGUF metadata into a specification of positions in each layer."""

from posenc.models.config.parse import specify as specify
from posenc.models.config.source import read as read
