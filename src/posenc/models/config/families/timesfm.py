"""TimesFM: sinusoids, added to the embeddings of patches of a time series."""

from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import Waves
from posenc.models.config.tables import required

NOTE = (
    "a position is a patch of `patch_length` values, and patches are counted from the first that"
    " is not padding; queries are multiplied by a learned factor of each channel"
)


def layers(config: Config) -> list[Layer]:
    config.notes.append(NOTE)
    return stack(config, scale=1.0)


def embedding(config: Config) -> Waves | None:
    if not config.flag("use_positional_embedding"):
        return None
    config.require("min_timescale", 1)
    width, base = required(config, "hidden_size"), config.number("max_timescale", above=1.0)
    if width % 2 or width < 4:
        config.fail("hidden_size", "must be even and at least 4", width)
    if base is None:
        config.fail("max_timescale", "is missing")
    return Waves(width, base, halves=True, closed=True)
