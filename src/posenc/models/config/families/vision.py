"""Vision towers with RoPE over the rows and columns of patches, some with a learned table too.

A config does not state the order of the patches, the axis of each pair, or how the table is resized
to an image. They are in the code of each class, and here as data.
"""

from typing import Any

from posenc.models.config.fields import FULL, PATCH_WINDOW, head_dim
from posenc.models.config.layers import IDLE, Config, Layer, hybrid, stack
from posenc.models.config.spec import PatchOrder, PatchRotary, PatchTable
from posenc.models.config.tables import EDGES, IMAGE, SQUARE, grid, required, sides

ORDERS = {  # order of the patches → models
    "blocks": "qwen2_vl_vision qwen3_vl_vision qwen3_vl_moe_vision qwen3_5_vision"
    " qwen3_5_moe_vision qwen3_omni_moe_vision_encoder qwen4_exp_vision glm4v_vision"
    " glm4v_moe_vision glm_ocr_vision glm5_next_vision ernie4_5_vl_moe_vision"
    " cohere_compass_vision dots3_note_vision_encoder lfm3_vl_vision minimax_m3_vl_vision"
    " inkling2_vision",
    "windows": "qwen2_5_vl_vision qwen2_5_omni_vision_encoder exaone4_5_vision"
    " muse_glimmer_vision muse_spark_vision",
    "rows": "paddleocr_vl_vision kimi_k25_vision step3p5_vision pixtral llama4_vision_model"
    " video_llama_3_vision mlcd mlcd_vision_model",
}
MODELS = " ".join(ORDERS.values())
COLUMN_FIRST = {"axes": ("column", "row")}
ROTATIONS: dict[str, dict[str, Any]] = {  # fields of `PatchRotary` that differ from the usual ones
    "inkling2_vision": {**COLUMN_FIRST, "layout": "interleaved", "first": 1},
    "kimi_k25_vision": {**COLUMN_FIRST, "pairs": "turns"},
    "llama4_vision_model": {**COLUMN_FIRST, "layout": "interleaved", "first": 1},
    "minimax_m3_vl_vision": {"axes": ("frame", "row", "column")},
    "muse_glimmer_vision": {**COLUMN_FIRST, "first": 1},
    "muse_spark_vision": {**COLUMN_FIRST, "first": 1},
    "pixtral": {"pairs": "split"},
    "step3p5_vision": COLUMN_FIRST,
}
ALIGNED = "bilinear, corners aligned"
TABLES: dict[str, tuple[str, dict[str, Any]]] = {  # key of the size, and fields of `PatchTable`
    **dict.fromkeys(
        "qwen3_vl_vision qwen3_vl_moe_vision qwen3_5_vision qwen3_5_moe_vision"
        " qwen3_omni_moe_vision_encoder qwen4_exp_vision cohere_compass_vision".split(),
        (SQUARE, {"resized": ALIGNED}),
    ),
    "glm4v_vision": (IMAGE, {"resized": "bicubic"}),
    "glm4v_moe_vision": (IMAGE, {"resized": "bicubic"}),
    "inkling2_vision": ("posemb_grid_size", {"resized": "bilinear"}),
    "kimi_k25_vision": (EDGES, {"resized": "bicubic"}),
    "llama4_vision_model": (IMAGE, {"after": 1}),
    "muse_glimmer_vision": (EDGES, {"resized": "bilinear, zeros outside"}),
    "muse_spark_vision": (EDGES, {"resized": "bilinear, zeros outside", "exchanged": True}),
    "paddleocr_vl_vision": (IMAGE, {"resized": "bilinear"}),
    "step3p5_vision": (IMAGE, {"resized": "bilinear"}),
}
CLASS_ANGLES = "rotates the class token by learned angles"
APART = "images, and frames of a video, do not attend to each other"
NOTES = {
    "inkling2_vision": "the class token has a row of its own and is not rotated",
    "kimi_k25_vision": "the frames of a video attend to each other, and sinusoids of the frame are"
    " added to them",
    "llama4_vision_model": "the class token is last and is not rotated",
    "minimax_m3_vl_vision": "the frames of a video attend to each other",
    "muse_spark_vision": f"{APART}; the table is read as for an image with rows and"
    " columns exchanged",
    "video_llama_3_vision": "patches are in blocks of `merge_sizes`, an argument of its call: 1 for"
    " images, 2 for videos",
}


def standard_keys(config: Config) -> dict[str, Any]:
    """Return the config's values, with the width of the vision layers under `hidden_size`."""
    values = dict(config.values)
    if config.family.name == "qwen2_vl_vision":
        # `hidden_size` is the width of the text model here
        width = {"hidden_size": values.pop("embed_dim")} if "embed_dim" in values else {}
        values = {key: value for key, value in values.items() if key != "hidden_size"} | width
    return values


def layers(config: Config) -> list[Layer]:
    name = config.family.name
    config.notes.append(NOTES.get(name, APART))
    dim, order, chosen = head_dim(config), patch_order(config), ROTATIONS.get(name, {})
    axes = len(chosen.get("axes", "hw"))
    if dim < 2 * axes or (axes == 2 and dim % 4):
        config.fail("hidden_size", f"must give heads a pair for each of {axes} axes", dim)
    rotary = PatchRotary(dim, rope_base(config), order=order, **chosen)
    if name == "lfm3_vl_vision":
        usual = ["conv" if i < 2 or i % 2 else FULL for i in range(config.depth())]
        return hybrid(config, usual, idle=(*IDLE,), encode=lambda kind: rotary)
    kinds, windows = _kinds(config), {PATCH_WINDOW: order.window}
    known, learned = (FULL, PATCH_WINDOW), CLASS_ANGLES if name.startswith("mlcd") else ""
    return stack(config, kinds, known, lambda kind: rotary, windows, unsupported=learned)


def _kinds(config: Config) -> list[str]:
    """Return each layer's type: full attention, or attention within windows of patches."""
    if "muse" in config.family.name:
        last = config.depth() - 1
        return [FULL if i % 4 == 3 or i == last else PATCH_WINDOW for i in range(last + 1)]
    full = config.counts("fullatt_block_indexes")
    return [FULL if full is None or i in full else PATCH_WINDOW for i in range(config.depth())]


def patch_order(config: Config) -> PatchOrder:
    """Return the order in which the model lists patches, with its block and window sizes."""
    order = next(order for order, names in ORDERS.items() if config.family.name in names.split())
    if order == "rows":
        return PatchOrder()
    if "muse" in config.family.name:
        return PatchOrder("windows", 1, required(config, EDGES))
    merge = required(config, "spatial_merge_size")
    if order == "blocks":
        return PatchOrder("blocks", merge)
    pixels, patch = required(config, "window_size"), sides(config, "patch_size")[0]
    if pixels < merge * patch:
        config.fail("window_size", f"must be at least a block of {merge * patch} pixels", pixels)
    return PatchOrder("windows", merge, pixels // merge // patch * merge)


def rope_base(config: Config) -> float:
    """Return the RoPE base of a vision tower. Raises ModelError if the config scales the RoPE."""
    rope = config.object("rope_parameters")
    base = config.number("rope_theta", above=1.0)
    kind = rope and rope.stated("rope_type")
    if rope and kind not in (None, "axial", "default"):
        rope.fail("rope_type", "must be 'axial' for a vision tower", kind)
    inner = rope and rope.number("rope_theta", above=1.0)
    usual = (config.defaults.get("rope_parameters") or {}).get("rope_theta")
    base = inner or base or usual
    if base is None:
        config.fail("rope_theta", "is missing")
    return float(base)


def embedding(config: Config) -> PatchTable | None:
    """Return the learned position table that some vision towers add besides RoPE, or None."""
    if config.family.name not in TABLES:
        return None
    key, fields = TABLES[config.family.name]
    width = required(config, "hidden_size")
    return PatchTable(grid(config, key), width, order=patch_order(config), **fields)
