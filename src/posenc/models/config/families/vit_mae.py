"""ViT-MAE: sinusoids of column and row, stored in the checkpoint and never trained."""

from posenc.models.config.layers import Config
from posenc.models.config.spec import PatchWaves
from posenc.models.config.tables import required

NOTE = (
    "the sinusoids are stored, with a row of zeros for the class token before them, and are"
    " resized to another image only in calls with `interpolate_pos_encoding=True` (bicubic)"
)


def embedding(config: Config) -> PatchWaves:
    width = required(config, "hidden_size")
    if width % 4:
        config.fail("hidden_size", "must be a multiple of 4, for two axes of sinusoids", width)
    config.notes.append(NOTE)
    return PatchWaves(width, halves=True, axes=("column", "row"))
