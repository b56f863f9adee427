"""SAM's vision models: sinusoids of row and column are added to feature maps of several sizes."""

from posenc.models.config.layers import Config, Layer
from posenc.models.config.spec import PatchWaves
from posenc.models.config.tables import required

MODELS = "sam2_vision_model sam3_vision_model edgetam_vision_model"


def layers(config: Config) -> list[Layer]:
    """Return an empty list, since the backbone's own config describes the layers."""
    return []


def embedding(config: Config) -> PatchWaves:
    width = required(config, "fpn_hidden_size")
    if width % 4:
        config.fail("fpn_hidden_size", "must be a multiple of 4, for two axes of sinusoids", width)
    config.notes.append("the sinusoids are passed on to the layers that attend to the features")
    return PatchWaves(width, normalised=True, first=1.0)
