"""SAM's image encoder: MViTv2's relative positions; most layers attend in windows of patches."""

from posenc.models.config.fields import FULL, PATCH_WINDOW, head_dim
from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import PatchOffsets, PatchTable
from posenc.models.config.tables import IMAGE, grid, required

RESIZED = "deepseek_ocr2_sam_vision_model unlimited_ocr_sam_vision_model"
MODELS = (
    "sam_vision_model sam_hq_vision_model got_ocr2_vision pp_chart2table_vision"
    f" pp_formulanet_vision slanext_vision {RESIZED}"
)
EDGES = "windows at the edge are filled with zeros, which take part in attention"


def layers(config: Config) -> list[Layer]:
    depth, side = config.depth(), config.count("window_size", least=0) or 0
    full, cells = config.counts("global_attn_indexes") or (), grid(config, IMAGE)
    kinds = [FULL if i in full or not side else PATCH_WINDOW for i in range(depth)]
    config.notes += [EDGES] if PATCH_WINDOW in kinds else []
    dim, sizes = head_dim(config), {FULL: cells, PATCH_WINDOW: (side, side)}
    offsets = config.flag("use_rel_pos") is not False
    return stack(
        config,
        kinds,
        (FULL, PATCH_WINDOW),
        lambda kind: PatchOffsets(dim, sizes[kind]) if offsets else None,
        {PATCH_WINDOW: side},
    )


def embedding(config: Config) -> PatchTable | None:
    if config.flag("use_abs_pos") is False:
        return None
    method = "bicubic, antialiased" if config.family.name in RESIZED.split() else ""
    return PatchTable(grid(config, IMAGE), required(config, "hidden_size"), method)
