"""Learned position tables that vision models resize to each image, by rules of their own.

ViT, CLIP and others with a table for images of one size need no file.
"""

from typing import Any

from posenc.models.config.fields import FULL, PATCH_WINDOW
from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import PatchOrder, PatchTable
from posenc.models.config.tables import IMAGE, SQUARE, grid, required, sides

PRETRAINED, LARGEST = "pretrain_image_size", "max_image_size"
ANTIALIASED = "bilinear, antialiased"
TABLES: dict[str, tuple[str, dict[str, Any]]] = {  # key of the size, and fields of `PatchTable`
    "aimv2_vision_model": (IMAGE, {}),
    "audio-spectrogram-transformer": ("", {"before": 2}),
    "cosmos3_edge_vision": ("num_patches", {"resized": ANTIALIASED}),
    "eomt": (IMAGE, {}),
    "glm_image_vision": (IMAGE, {"resized": "bilinear"}),
    "granite_docling_vision": (IMAGE, {}),
    "hunyuan_vl_vision": (LARGEST, {"before": 1}),
    "idefics2_vision": (IMAGE, {"resized": "nearest"}),
    "idefics3_vision": (IMAGE, {"resized": "nearest"}),
    "idefics_vision": (IMAGE, {"resized": "bicubic, sides + 0.1", "before": 1}),
    "lw_detr_vit": (PRETRAINED, {"resized": "bicubic", "before": 1}),
    "minicpm_ocr_vision": (IMAGE, {"resized": "nearest"}),
    "minicpmv4_6_vision": (IMAGE, {"resized": "nearest"}),
    "minicpmv4_7_vision": (IMAGE, {"resized": "nearest"}),
    "molmo2_vision": (IMAGE, {}),
    "phi4_multimodal_vision": (IMAGE, {"resized": "nearest"}),
    "pixio": (IMAGE, {"resized": "bicubic"}),
    "radio": ("max_img_size", {"resized": "bilinear, square"}),
    "rf_detr_dinov2": (IMAGE, {"resized": "bicubic, antialiased", "before": 1}),
    "siglip2_vision_model": ("num_patches", {"resized": ANTIALIASED}),
    "smolvlm_vision": (IMAGE, {"resized": "nearest"}),
    "tipsv2_vision_model": (IMAGE, {"resized": ANTIALIASED, "before": 1}),
    "vitdet": (PRETRAINED, {"resized": "bicubic", "before": 1}),
}
MODELS = " ".join(TABLES)
NEAREST = (
    "at a few sizes, rounding in the code of the model selects a neighbouring row of the table"
)
ON_REQUEST = "the table is resized only in calls with `interpolate_pos_encoding=True`"
MERGER = "after layer `insert_layer_id`, blocks of patches attend within themselves and are merged"
SKIPPED = "the first stored row, of a class token, is not used"
NOTES = {
    "eomt": "learned queries without positions join in the last `num_blocks` layers",
    "hunyuan_vl_vision": SKIPPED,
    "idefics2_vision": NEAREST,
    "idefics3_vision": NEAREST,
    "idefics_vision": ON_REQUEST,
    "lw_detr_vit": SKIPPED,
    "minicpm_ocr_vision": f"{MERGER}; {NEAREST}",
    "minicpmv4_6_vision": f"{MERGER}; {NEAREST}",
    "minicpmv4_7_vision": f"{MERGER}; {NEAREST}",
    "phi4_multimodal_vision": NEAREST,
    "smolvlm_vision": NEAREST,
    "vitdet": f"{SKIPPED}; windows at the edge are filled with zeros, which take part in attention",
}
PARTED = "is limited to a fixed number of windows of an image of any size"


def layers(config: Config) -> list[Layer]:
    name = config.family.name
    config.notes += [NOTES[name]] if name in NOTES else []
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
    key, chosen = TABLES[name]
    fields = dict(chosen)
    if name == "hunyuan_vl_vision":
        fields["resized"] = _method(config)
    if name == "pixio":
        fields["before"] = required(config, "n_cls_tokens")
    if name in ("cosmos3_edge_vision", "glm_image_vision"):
        fields["order"] = PatchOrder("blocks", required(config, "spatial_merge_size"))
    cells = grid(config, key) if key else _spectrogram(config)
    stated = config.count(SQUARE) if name == "molmo2_vision" else None
    if stated not in (None, cells[0] * cells[1]):
        config.fail(SQUARE, f"must be {cells[0]} × {cells[1]}, the patches of an image", stated)
    return PatchTable(cells, required(config, "hidden_size"), **fields)


def _method(config: Config) -> str:
    method = config.value("interpolate_mode")
    if method not in ("bilinear", "bicubic"):
        config.fail("interpolate_mode", "must be 'bilinear' or 'bicubic'", method)
    return method


def _spectrogram(config: Config) -> tuple[int, int]:
    """Return the patches along frequency and along time of a spectrogram; patches overlap."""
    patch = sides(config, "patch_size")[0]
    found = [
        (required(config, size) - patch) // required(config, step) + 1
        for size, step in (("num_mel_bins", "frequency_stride"), ("max_length", "time_stride"))
    ]
    if min(found) < 1:
        config.fail("num_mel_bins", f"or max_length is less than a patch of {patch}")
    return found[0], found[1]
