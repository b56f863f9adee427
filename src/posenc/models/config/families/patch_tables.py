"""Vision models with a learned position table, resized to the image by each model's own rule.

ViT, CLIP and others with a table for images of one size need no file.
"""

import tomllib
from importlib.resources import files
from typing import Any

from posenc.models.config.fields import FULL, PATCH_WINDOW
from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import PatchOrder, PatchTable
from posenc.models.config.tables import SQUARE, grid, required, sides

TOWERS: dict[str, dict[str, Any]] = {
    name: tower
    for tower in tomllib.loads(
        (files("posenc.models.config.families") / "patch_tables.toml").read_text("utf-8")
    )["tower"]
    for name in tower["models"].split()
}
MODELS = " ".join(TOWERS)
PARTED = "is limited to a fixed number of windows of an image of any size"


def layers(config: Config) -> list[Layer]:
    name = config.family.name
    config.notes += [TOWERS[name]["note"]] if "note" in TOWERS[name] else []
    if name == "vitdet":
        config.require("use_relative_position_embeddings", False)
        windows, side = config.counts("window_block_indices") or (), config.count("window_size", 0)
        kinds = [PATCH_WINDOW if side and i in windows else FULL for i in range(config.depth())]
        return stack(config, kinds, (FULL, PATCH_WINDOW), windows={PATCH_WINDOW: side})
    parted = (config.count("num_windows") or 1) > 1
    return stack(config, unsupported=PARTED if parted else "")


def embedding(config: Config) -> PatchTable | None:
    name = config.family.name
    if config.flag("use_absolute_position_embeddings") is False:
        return None
    config.require("is_native", False)
    fields = dict(TOWERS[name].get("table", {}))
    if name == "hunyuan_vl_vision":
        fields["resized"] = _method(config)
    if name == "pixio":
        fields["before"] = required(config, "n_cls_tokens")
    if name in ("cosmos3_edge_vision", "glm_image_vision"):
        fields["order"] = PatchOrder("blocks", required(config, "spatial_merge_size"))
    size = TOWERS[name].get("size")
    cells = grid(config, size) if size else _spectrogram(config)
    stated = config.count(SQUARE) if name == "molmo2_vision" else None
    if stated not in (None, cells[0] * cells[1]):
        config.fail(SQUARE, f"must be {cells[0] * cells[1]}, the number of patches", stated)
    return PatchTable(cells, required(config, "hidden_size"), **fields)


def _method(config: Config) -> str:
    method = config.value("interpolate_mode")
    if method not in ("bilinear", "bicubic"):
        config.fail("interpolate_mode", "must be 'bilinear' or 'bicubic'", method)
    return method


def _spectrogram(config: Config) -> tuple[int, int]:
    """Return a spectrogram's numbers of overlapping patches along frequency and along time."""
    patch = sides(config, "patch_size")[0]
    found = [
        (required(config, size) - patch) // required(config, step) + 1
        for size, step in (("num_mel_bins", "frequency_stride"), ("max_length", "time_stride"))
    ]
    if min(found) < 1:
        config.fail("num_mel_bins", f"must be at least {patch}, and so must max_length")
    return found[0], found[1]
