"""DINOv3: patches are rotated by where they are in the picture."""

from posenc.models.config.fields import head_dim
from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import Pictured

MODELS = "dinov3_vit sapiens2"


def layers(config: Config) -> list[Layer]:
    dim, base = head_dim(config), config.number("rope_theta", above=1.0)
    if base is None:
        config.fail("rope_theta", "is missing")
    if dim % 4:
        config.fail("hidden_size", "makes heads whose channels two axes cannot share alike", dim)
    return stack(config, encode=lambda kind: Pictured(dim, base))
