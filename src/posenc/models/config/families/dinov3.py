"""DINOv3: axial RoPE over the rows and columns of the patches."""

from posenc.models.config.fields import head_dim
from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import PatchRotary

MODELS = "dinov3_vit sapiens2"


def layers(config: Config) -> list[Layer]:
    dim, base = head_dim(config), config.number("rope_theta", above=1.0)
    if base is None:
        config.fail("rope_theta", "is missing")
    if dim % 4:
        config.fail("hidden_size", "must give heads a multiple of 4 channels, for two axes", dim)
    return stack(config, encode=lambda kind: PatchRotary(dim, base, scaled=True))
