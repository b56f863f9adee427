"""Read the positional encoding of each layer from Hugging Face configs and GGUF metadata."""

from posenc.models.config.parse import specify as specify
from posenc.models.config.source import read as read
