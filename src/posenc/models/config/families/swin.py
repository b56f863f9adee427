"""Swin and Swin v2: windows of patches, with a bias for each offset within a window.

A model has stages; after each but the last, blocks of 2 × 2 patches are merged into one, so later
layers have fewer, larger patches and more heads. Every second layer has shifted windows.
"""

from typing import Any

from posenc.models.config.fields import PATCH_WINDOW
from posenc.models.config.layers import Config, Layer
from posenc.models.config.spec import PatchBias, PatchNetwork, PatchTable
from posenc.models.config.tables import IMAGE, grid, required, sides

MODELS = "swin donut-swin maskformer-swin clap_audio_model swinv2 swin2sr"
NETWORKS = ("swinv2", "swin2sr")  # a network computes their bias
DEEPEST = 1000  # layers
MERGED = (
    "after each stage, blocks of 2 × 2 patches are merged: positions in a layer are rows and"
    " columns of merged patches"
)
NARROW = (
    "windows are shifted as for an image of `image_size`; in transformers, layers whose patches fit"
    " in a window along rows or columns do not shift them"
)
EDGES = "windows at the edge are filled with zeros, which take part in attention"
COSINES = (
    "queries and keys are normalised, and queries are multiplied by a learned factor of each head"
)


def standard_keys(config: Config) -> dict[str, Any]:
    """Return the config's values, with each stage's number of heads under `stage_heads`."""
    depths = config.counts("depths", least=1) or ()
    if not 0 < sum(depths) <= DEEPEST:
        config.fail(
            "depths",
            f"must list the number of layers of each stage, at most {DEEPEST} in all",
            [*depths],
        )
    heads = config.counts("num_attention_heads", least=1)
    if heads is None or len(heads) != len(depths):
        many = f"must have {len(depths)} numbers of heads, one for each stage"
        config.fail("num_attention_heads", many, heads and [*heads])
    values = {key: value for key, value in config.values.items() if key != "num_layers"}
    own = {"num_heads": None, "num_attention_heads": None}
    return values | own | {"stage_heads": [*heads], "num_hidden_layers": sum(depths)}


def layers(config: Config) -> list[Layer]:
    name, window = config.family.name, required(config, "window_size")
    depths, heads = config.counts("depths") or (), config.counts("stage_heads") or ()
    config.notes += [EDGES, *([] if name == "swin2sr" else [MERGED])]
    config.notes += [NARROW] if name in ("swin", "donut-swin") else []
    config.notes += [COSINES] if name in NETWORKS else []
    found = []
    for stage, depth in enumerate(depths):
        side, shift = _window(config, stage, window)
        bias = _bias(config, stage, heads[stage], side)
        scale = 1.0 if name in NETWORKS else None
        found += [
            Layer(bias, PATCH_WINDOW, window=side, shift=shift * (i % 2), scale=scale)
            for i in range(depth)
        ]
    return found


def _bias(config: Config, stage: int, heads: int, side: int) -> PatchBias | PatchNetwork:
    if config.family.name not in NETWORKS:
        return PatchBias(heads, (side, side))
    trained = side
    if config.family.name == "swinv2":
        stated = config.counts("pretrained_window_sizes") or (0,)
        if len(stated) <= stage:
            config.fail("pretrained_window_sizes", "must list a size for each stage", list(stated))
        trained = stated[stage] or side
    if min(trained, side) < 2:
        config.fail("window_size", "must be at least 2 patches in each stage", min(trained, side))
    return PatchNetwork(heads, (side, side), (trained, trained))


def _window(config: Config, stage: int, window: int) -> tuple[int, int]:
    """Return the side length and the shift of a stage's windows, both in patches."""
    name, cells = config.family.name, _cells(config, stage)
    if name in NETWORKS:
        # These classes compare the rows of an image of `image_size`, for images of any size
        return min(cells[0], window), 0 if cells[0] <= window else window // 2
    fits = name != "maskformer-swin" and min(cells) == window
    return window, 0 if fits else window // 2


def _cells(config: Config, stage: int) -> tuple[int, int]:
    """Return a stage's numbers of patch rows and columns, for an image of the config's size."""
    name = config.family.name
    if name == "clap_audio_model":
        image, patch = sides(config, "spec_size"), sides(config, "patch_stride")
        cells = image[0] // patch[0], image[1] // patch[1]
    else:
        cells = grid(config, IMAGE)
    if name == "swin2sr":
        return cells
    # Swin fills odd sides with zeros; the other two divide the sides that the config states
    up = name not in (*NETWORKS, "clap_audio_model")
    found = [-(-side // 2**stage) if up else side // 2**stage for side in cells]
    if min(found) < 1:
        config.fail("depths", f"has too many stages for {cells[0]} × {cells[1]} patches")
    return found[0], found[1]


def embedding(config: Config) -> PatchTable | None:
    if config.family.name != "swin":
        # Tables of the other classes have one row too many, so they fit no image
        config.require("use_absolute_embeddings", False)
        return None
    if not config.flag("use_absolute_embeddings"):
        return None
    config.notes.append("the table is resized only in calls with `interpolate_pos_encoding=True`")
    return PatchTable(grid(config, IMAGE), required(config, "embed_dim"), "bicubic")
