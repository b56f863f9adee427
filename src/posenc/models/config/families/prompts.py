"""SAM's prompt encoders: points and boxes as Fourier features with random directions."""

from posenc.models.config.layers import Config, Layer
from posenc.models.config.spec import PointWaves
from posenc.models.config.tables import required

MODELS = (
    "sam_prompt_encoder sam_hq_prompt_encoder sam2_prompt_encoder sam2_video_prompt_encoder"
    " sam3_tracker_prompt_encoder sam3_tracker_video_prompt_encoder edgetam_prompt_encoder"
    " edgetam_video_prompt_encoder"
)


def layers(config: Config) -> list[Layer]:
    """Return an empty list, since the prompt encoder has no attention layers."""
    return []


def embedding(config: Config) -> PointWaves:
    width = required(config, "hidden_size")
    if width % 2:
        config.fail("hidden_size", "must be even, for pairs of sine and cosine", width)
    config.notes.append("the directions are stored in the weights and are not trained")
    return PointWaves(width)
