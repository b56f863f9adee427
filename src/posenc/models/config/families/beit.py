"""BEiT: a learned bias for each offset between patches, and for pairs with the class token."""

from posenc.models.config.layers import Config, Layer, stack
from posenc.models.config.spec import PatchBias, PatchTable
from posenc.models.config.tables import IMAGE, grid, required

MODELS = "beit data2vec-vision"
RESIZED = "for an image of another size, the table of biases is resized (bilinear)"


def layers(config: Config) -> list[Layer]:
    own = config.flag("use_relative_position_bias")
    shared = config.flag("use_shared_relative_position_bias")
    if not own and not shared:
        return stack(config)
    if own and shared:
        config.refuse(
            "use_shared_relative_position_bias",
            config.family.name,
            "each layer adds two tables of biases, its own and a shared one",
        )
    cells = grid(config, IMAGE)
    if cells[0] != cells[1]:
        # The class exchanges the sides of its table before it resizes it
        config.fail(IMAGE, "must be square", list(cells))
    heads = required(config, "num_attention_heads")
    config.notes.append(RESIZED)
    bias = PatchBias(heads, cells, class_token=True, shared=bool(shared))
    return stack(config, encode=lambda kind: bias)


def embedding(config: Config) -> PatchTable | None:
    if not config.flag("use_absolute_position_embeddings"):
        return None
    return PatchTable(grid(config, IMAGE), required(config, "hidden_size"), "bicubic", before=1)
