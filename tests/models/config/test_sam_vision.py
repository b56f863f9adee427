"""Test the scores of SAM's image encoders against transformers' own attention modules."""

from inspect import getsource

import pytest

pytest.importorskip("transformers")

import torch
from transformers import CONFIG_MAPPING

from posenc.core.positions import grid
from posenc.models.config import specify
from posenc.models.config.families import sam_vision
from posenc.models.config.spec import PatchOffsets, PatchTable
from tools import watched

EVERY = pytest.mark.parametrize("name", sam_vision.MODELS.split())
SIZES = dict(
    hidden_size=32, num_hidden_layers=3, num_attention_heads=2, image_size=24, patch_size=4
)
WINDOWS = dict(window_size=4, global_attn_indexes=[1])


def made(name):
    return CONFIG_MAPPING[name](**SIZES, **WINDOWS)


def classes(name):
    # PP-Chart2Table runs GOT-OCR's encoder
    config_class = CONFIG_MAPPING["got_ocr2_vision" if name == "pp_chart2table_vision" else name]
    modules = [vars(module) for module in watched.modules(config_class)]
    return {n: kind for one in modules for n, kind in one.items() if isinstance(kind, type)}


@EVERY
@pytest.mark.parametrize("layer", [0, 1])
def test_scores_of_offsets_equal_those_of_the_attention_module(name, layer):
    """Compare the added scores in a window of 4 × 4 patches, and in an image of 6 × 6."""
    config, spec = made(name), specify(made(name).to_dict())
    near, far, _ = spec.layers
    assert (near.window, far.window) == (4, None)
    said = spec.layers[layer]
    assert isinstance(said.encoding, PatchOffsets)
    side = (4, 6)[layer]
    assert said.encoding.size == (side, side)
    (kind,) = (
        own for n, own in classes(name).items()
        if n.endswith("VisionAttention") and hasattr(own, "get_decomposed_rel_pos")
    )  # fmt: skip
    module, encoding = kind(config, said.window or 0), said.build()
    with torch.no_grad():
        for table in (encoding.rows, encoding.columns):
            table.normal_()
        module.rel_pos_h.copy_(encoding.rows)
        module.rel_pos_w.copy_(encoding.columns)
        q, k = torch.randn(2, 1, 2, side**2, 16)
        size = (side, side)
        true = module.get_decomposed_rel_pos(q[0], module.rel_pos_h, module.rel_pos_w, size, size)
        at = encoding.prepare(grid(*size))
        own = encoding.on_scores(q, k, at, at, 0.25).block(slice(None), slice(None))[0]
    torch.testing.assert_close(own, true.reshape(own.shape), atol=1e-5, rtol=1e-4)


@EVERY
def test_the_table_has_the_size_of_the_module(name):
    """SAM's table is a grid of rows and columns, (1, row, column, channel)."""
    config, spec = made(name), specify(made(name).to_dict())
    assert isinstance(spec.embedding, PatchTable)
    kinds = [
        own
        for n, own in classes(name).items()
        if n.endswith(("VisionEncoder", "VisionModel")) and "self.pos_embed" in getsource(own)
    ]
    (kind,) = kinds
    with torch.device("meta"):
        table = kind(config).pos_embed
    assert tuple(table.shape) == (1, *spec.embedding.grid, spec.embedding.width)


def test_an_encoder_without_offsets_or_windows_has_none():
    spec = specify({"model_type": "sam_vision_model", "use_rel_pos": False, "window_size": 0})
    assert {(layer.encoding, layer.window) for layer in spec.layers} == {(None, None)}
