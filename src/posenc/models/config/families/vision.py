"""Vision towers with RoPE over rows and columns of patches; some also have a learned table.

A config does not state the order of the patches, the axis of each pair, or how the table is resized
to an image. They are in the code of each class, and in vision.toml.
"""

import tomllib
from importlib.resources import files
from typing import Any

from posenc.models.config.fields import FULL, PATCH_WINDOW, head_dim
from posenc.models.config.layers import IDLE, Config, Layer, hybrid, stack
from posenc.models.config.spec import PatchOrder, PatchRotary, PatchTable
from posenc.models.config.tables import EDGES, grid, required, sides

TOWERS: dict[str, dict[str, Any]] = {
    name: tower
    for tower in tomllib.loads(
        (files("posenc.models.config.families") / "vision.toml").read_text("utf-8")
    )["tower"]
    for name in tower["models"].split()
}
MODELS = " ".join(TOWERS)
APART = "images, and frames of a video, do not attend to each other"


def standard_keys(config: Config) -> dict[str, Any]:
    """Return the config's values, with the width of the vision layers under `hidden_size`."""
    values = dict(config.values)
    if config.family.name == "qwen2_vl_vision":
        # `hidden_size` is the width of the text model here
        width = {"hidden_size": values.pop("embed_dim")} if "embed_dim" in values else {}
        values = {key: value for key, value in values.items() if key != "hidden_size"} | width
    return values


def layers(config: Config) -> list[Layer]:
    name, tower = config.family.name, TOWERS[config.family.name]
    config.notes.append(tower.get("note", APART))
    dim, order = head_dim(config), patch_order(config)
    rotary = {"axes": ("row", "column"), **tower.get("rotary", {})}
    axes = len(rotary["axes"])
    if dim < 2 * axes or (axes == 2 and dim % 4):
        size = "a multiple of 4" if axes == 2 else f"at least {2 * axes}"
        problem = (
            f"must give each head {size} channels, since each of {axes} axes rotates channel pairs"
        )
        config.fail("hidden_size", problem, dim)
    rotary |= {"axes": tuple(rotary["axes"])}
    encoding = PatchRotary(dim, rope_base(config), order=order, **rotary)
    if name == "lfm3_vl_vision":
        usual = ["conv" if i < 2 or i % 2 else FULL for i in range(config.depth())]
        return hybrid(config, usual, idle=(*IDLE,), encode=lambda kind: encoding)
    kinds, windows = _kinds(config), {PATCH_WINDOW: order.window}
    return stack(config, kinds, (FULL, PATCH_WINDOW), lambda kind: encoding, windows)


def _kinds(config: Config) -> list[str]:
    """Return each layer's type: full attention, or attention within windows of patches."""
    if "muse" in config.family.name:
        last = config.depth() - 1
        return [FULL if i % 4 == 3 or i == last else PATCH_WINDOW for i in range(last + 1)]
    full = config.counts("fullatt_block_indexes")
    return [FULL if full is None or i in full else PATCH_WINDOW for i in range(config.depth())]


def patch_order(config: Config) -> PatchOrder:
    """Return the model's order of patches, including the sizes of blocks and windows."""
    order = TOWERS[config.family.name]["order"]
    if order == "rows":
        return PatchOrder()
    if "muse" in config.family.name:
        return PatchOrder("windows", 1, required(config, EDGES))
    merge = required(config, "spatial_merge_size")
    if order == "blocks":
        return PatchOrder("blocks", merge)
    pixels, patch = required(config, "window_size"), sides(config, "patch_size")[0]
    if pixels < merge * patch:
        config.fail(
            "window_size",
            f"must be at least {merge * patch} pixels, a block of merged patches",
            pixels,
        )
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
    table = dict(TOWERS[config.family.name].get("table", {}))
    if not table:
        return None
    cells, width = grid(config, table.pop("size")), required(config, "hidden_size")
    return PatchTable(cells, width, order=patch_order(config), **table)
