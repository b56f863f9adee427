"""DINOv3: axial RoPE over the rows and columns of the patches."""

from posenc.models.config.families.vision import rope_base
from posenc.models.config.fields import head_dim
from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import PatchRotary

MODELS = "dinov3_vit eomt_dinov3 sapiens2"


def layers(config: Config) -> list[Layer]:
    dim, base = head_dim(config), rope_base(config)
    if config.family.name == "eomt_dinov3":
        config.notes.append("learned queries without places join in the last `num_blocks` layers")
    if dim % 4:
        config.fail("hidden_size", "must give each head a multiple of 4 channels", dim)
    return stack(config, encode=lambda kind: PatchRotary(dim, base, scaled=True))
