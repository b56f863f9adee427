"""Any Hugging Face config → what the model does about positions, layer by layer."""

from posenc.models.config.parse import read as read
from posenc.models.config.parse import specify as specify
