"""Detectors such as DETR, whose encoder adds sinusoids of row and column to queries and keys.

The sinusoids span an image (DETR) or count patches (RT-DETR). The decoder attends from learned
queries, which have no place in the image, so its layers are not part of the specification.
"""

from posenc.models.config.layers import Config, Layer, no_encoding, stack
from posenc.models.config.spec import PatchWaves

FULL = "detr table-transformer conditional_detr dab-detr"
SAMPLED = "deformable_detr grounding-dino mm-grounding-dino mask2former oneformer"
COUNTED = "rt_detr rt_detr_v2 d_fine deimv2 pp_doclayout_v2 pp_doclayout_v3 pp_doclayout_v4"
MODELS = f"{FULL} {SAMPLED} {COUNTED} maskformer"
WIDTHS = {  # key of the channels of the image features, d_model for others
    **dict.fromkeys(COUNTED.split(), "encoder_hidden_dim"),
    "mask2former": "feature_size",
    "oneformer": "conv_dim",
}
USUAL_WIDTH = 256  # of all these classes
FEW = "samples a few points of each feature map"
QUERIES = "the decoder attends from learned queries without places, and its layers are not read"
LEVELS = "a learned vector for each size of the features is added to the sinusoids"


def layers(config: Config) -> list[Layer]:
    """Return the layers of the encoder that processes image features; MaskFormer has none."""
    name = config.family.name
    sampled = name in SAMPLED.split()
    config.notes += [QUERIES, *([LEVELS] if sampled else [])]
    if name == "maskformer":
        return []
    depth = config.count("encoder_layers")
    depth = (1 if name in COUNTED.split() else 6) if depth is None else depth
    if name in COUNTED.split():
        config.require("eval_size", None)
        depth *= len(config.counts("encode_proj_layers") or (2,))
    values = {"num_hidden_layers": depth, "num_attention_heads": 1, "hidden_size": 1}
    own = config.with_values(values, config.family.replaced(keys={key: key for key in values}))
    return stack(own, encode=no_encoding, unsupported=FEW if sampled else "")


def embedding(config: Config) -> PatchWaves:
    name = config.family.name
    kind = config.value("position_embedding_type")
    if kind not in (None, "sine"):
        config.refuse("position_embedding_type", name, "it adds learned tables of row and column")
    width = _width(config)
    if width % 4:
        key = config.at(WIDTHS.get(name, "d_model"))
        config.fail(key, "must be a multiple of 4, for two axes of sinusoids", width)
    if name in COUNTED.split():
        base = config.number("positional_encoding_temperature") or 1e4
        return PatchWaves(width, base, halves=True, each_layer=True)
    # Deformable DETR uses the centres of patches as coordinates; the others use their ends
    first = 0.5 if name == "deformable_detr" else 1.0
    return PatchWaves(width, _base(config), normalised=True, first=first, each_layer=True)


def _width(config: Config) -> int:
    name, inner = config.family.name, config.object("decoder_config")
    if name == "maskformer":
        return (inner and inner.count("d_model")) or USUAL_WIDTH
    return config.count(WIDTHS.get(name, "d_model")) or USUAL_WIDTH


def _base(config: Config) -> float:
    """Return the base of the sinusoids; raise Unread if DAB-DETR has different bases per axis."""
    name = config.family.name
    if name == "dab-detr":
        config.require("sine_position_embedding_scale", None)
        row, column = (config.number(f"temperature_{side}") or 20.0 for side in ("height", "width"))
        if row != column:
            why = f"rows and columns have different bases, {row:g} and {column:g}"
            config.refuse("temperature_height", name, why)
        return row
    if name.endswith("grounding-dino"):
        return config.number("positional_embedding_temperature") or 20.0
    return 1e4
