"""Test the reading of Swin, Swin v2, BEiT and their kin against transformers' own modules."""

import pytest

pytest.importorskip("transformers")

import torch
from refusals import refused
from transformers import CONFIG_MAPPING

from posenc.core.positions import grid
from posenc.models.config import specify
from posenc.models.config.families import beit, swin
from posenc.models.config.spec import PatchBias, PatchNetwork, PatchTable
from posenc.models.files.errors import ModelError, Unread
from tools import watched

EVERY = pytest.mark.parametrize("name", swin.MODELS.split())
BEIT = pytest.mark.parametrize("name", beit.MODELS.split())
SIZES = dict(embed_dim=8, depths=[2, 2], num_heads=[1, 2], window_size=4, patch_size=2)
CLAP = dict(
    patch_embeds_hidden_size=8, depths=[2, 2], num_attention_heads=[1, 2], window_size=4,
    patch_size=2, patch_stride=[2, 2], num_mel_bins=8, hidden_size=16,
)  # fmt: skip
KEPT = 1e-12  # influence of a token that attention excludes by a score of −100


def made(name, rows=8, columns=12, **more):
    """Return a config of two stages for an image of rows and columns of patches."""
    if name == "clap_audio_model":
        return CONFIG_MAPPING[name](**CLAP, spec_size=2 * rows, **more)
    more = {"image_size": [2 * rows, 2 * columns], **more}
    return CONFIG_MAPPING[name](**{**SIZES, **more})


def built(config):
    """Return the layers of a random model, and the attention module of each."""
    torch.manual_seed(0)
    model = watched.model_class(type(config))(config).double().eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    every = [module for module in model.modules() if hasattr(module, "shift_size")]
    attention = [
        next(
            part
            for part in layer.modules()
            if hasattr(part, "relative_position_bias_table")
            or hasattr(part, "continuous_position_bias_mlp")
        )
        for layer in every
    ]
    return every, attention


def cells(name, rows, columns, stage):
    divisor = 1 if name == "swin2sr" else 2**stage
    return rows // divisor, (rows if name == "clap_audio_model" else columns) // divisor


@EVERY
@torch.no_grad()
def test_a_layer_attends_within_the_windows_of_its_specification(name):
    """Change one patch at a time, and compare the changed outputs with the mask of the layer."""
    config = made(name)
    spec, (every, _) = specify(config.to_dict()), built(config)
    assert len(spec.layers) == len(every) == 4
    for index, (layer, module) in enumerate(zip(spec.layers, every, strict=True)):
        size = cells(name, 8, 12, index // 2)
        influences_match(layer, module, size, module.layernorm_before.normalized_shape[0])
    # The second stage of 4 × 6 patches fits in a window along the rows
    assert [layer.shift for layer in spec.layers] == [
        0, 2, 0, 2 if name in ("maskformer-swin", "swin2sr") else 0
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["swin", "maskformer-swin", "swinv2"])
@torch.no_grad()
def test_windows_at_the_edge_are_cut_off(name):
    """Change one of 6 × 10 patches at a time; the window does not divide the sides."""
    config = made(name, 6, 10, depths=[2], num_heads=[2])
    spec, (every, _) = specify(config.to_dict()), built(config)
    for layer, module in zip(spec.layers, every, strict=True):
        influences_match(layer, module, (6, 10), 8)


def influences_match(layer, module, size, width):
    points = grid(*size)
    count = len(points)
    x = torch.randn(1, count, width, dtype=torch.float64).repeat(count + 1, 1, 1)
    x[range(count), range(count)] += torch.randn(width, dtype=torch.float64)
    out = module(x, size)
    out = out[0] if isinstance(out, tuple) else out
    changed = (out[:-1] - out[-1]).abs().amax(-1) > KEPT
    every = torch.arange(count)
    mask = layer.mask(points, points)
    torch.testing.assert_close(changed.mT, mask(0, 0, every[:, None], every[None]))


@EVERY
@torch.no_grad()
def test_the_bias_of_each_layer_equals_that_of_its_module(name):
    """Compare the biases of all pairs in a window, from the tables of transformers' modules."""
    more = {"pretrained_window_sizes": [6, 3]} if name == "swinv2" else {}
    config = made(name, **more)
    spec, (_, attention) = specify(config.to_dict()), built(config)
    kind = PatchNetwork if name in swin.NETWORKS else PatchBias
    for layer, module in zip(spec.layers, attention, strict=True):
        assert isinstance(layer.encoding, kind)
        encoding = layer.build()
        if kind is PatchBias:
            encoding.table.copy_(module.relative_position_bias_table)
            rows = module.relative_position_bias_table[module.relative_position_index.flatten()]
        else:
            inner, _, outer = module.continuous_position_bias_mlp
            encoding.inner.weight.copy_(inner.weight)
            encoding.inner.bias.copy_(inner.bias)
            encoding.outer.weight.copy_(outer.weight)
            table = module.continuous_position_bias_mlp(module.relative_coords_table).flatten(0, 2)
            rows = 16 * table[module.relative_position_index.flatten()].sigmoid()
            assert layer.scale == 1
        heads, count = layer.encoding.heads, layer.window**2
        q = torch.zeros(1, heads, count, 8)
        at = encoding.prepare(grid(layer.window, layer.window))
        own = encoding.on_scores(q, q, at, at, 1.0).block(slice(None), slice(None))[0]
        expected = rows.unflatten(0, (count, count)).movedim(-1, 0).float()
        torch.testing.assert_close(own, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("grows", [False, True])
def test_the_table_of_swin_is_resized_on_request(grows):
    """Compare the rows that its embeddings add to an image of zeros."""
    config = made("swin", 8, 8, use_absolute_embeddings=True)
    table = specify(config.to_dict()).embedding
    assert isinstance(table, PatchTable)
    embeddings = watched.model_class(type(config))(config).embeddings
    rows, columns = (12, 10) if grows else (8, 8)
    with torch.no_grad():
        stored = embeddings.position_embeddings.normal_()[0]
        true = embeddings.interpolate_pos_encoding(
            torch.zeros(1, rows * columns, 8), 2 * rows, 2 * columns
        )
    torch.testing.assert_close(table.rows_of(stored, rows, columns), true[0])


@pytest.mark.parametrize("name", ["swinv2", "donut-swin"])
def test_a_table_with_a_row_too_many_is_refused(name):
    """These classes add 65 rows to 64 patches, which fails."""
    with refused(Unread, "use_absolute_embeddings", name):
        specify(made(name, 8, 8, use_absolute_embeddings=True).to_dict())


def test_a_number_of_heads_is_needed_for_each_stage():
    for stated in ([3, 6], None):
        with refused(ModelError, "num_heads", 4):
            specify({"model_type": "swin", "num_heads": stated, "depths": [2, 2, 6, 2]})
    with refused(ModelError, "num_heads", "list"):
        specify({"model_type": "swin", "num_heads": 4})
    with refused(ModelError, "depths", "1000"):
        specify({"model_type": "swin", "depths": [10**9]})


@BEIT
@pytest.mark.parametrize("shared", [False, True])
@torch.no_grad()
def test_the_bias_of_beit_equals_that_of_its_module(name, shared):
    """Compare the biases of all pairs of a class token and 3 × 3 patches."""
    key = "use_shared_relative_position_bias" if shared else "use_relative_position_bias"
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    config = CONFIG_MAPPING[name](**sizes, image_size=6, patch_size=2, **{key: True})
    model = watched.model_class(type(config))(config)
    modules = [m for m in model.modules() if hasattr(m, "relative_position_bias_table")]
    spec = specify(config.to_dict())
    assert len(modules) == (1 if shared else len(spec.layers))
    assert {layer.encoding for layer in spec.layers} == {PatchBias(2, (3, 3), True, shared)}
    encoding = spec.layers[0].build()
    encoding.table.normal_()
    modules[0].relative_position_bias_table.copy_(encoding.table)
    points = torch.cat((torch.full((1, 2), -1), grid(3, 3)))
    q, at = torch.zeros(1, 2, 10, 8), encoding.prepare(points)
    own = encoding.on_scores(q, q, at, at, 1.0).block(slice(None), slice(None))
    torch.testing.assert_close(own, modules[0]((3, 3)))


@BEIT
def test_a_beit_without_biases_has_no_encoding_and_one_with_two_tables_is_refused(name):
    assert {layer.encoding for layer in specify({"model_type": name}).layers} == {None}
    keys = ("use_relative_position_bias", "use_shared_relative_position_bias")
    with refused(Unread, keys[1], name):
        specify({"model_type": name, **dict.fromkeys(keys, True)})
    with refused(ModelError, "image_size", "square"):
        specify({"model_type": name, keys[0]: True, "image_size": [224, 256]})


def test_a_backbone_has_the_defaults_of_its_own_class():
    """ZoeDepth's defaults are those of a file that states no backbone at all."""
    from transformers import ZoeDepthConfig

    file = {"model_type": "zoedepth", "backbone_config": {"model_type": "beit"}}
    config = ZoeDepthConfig(backbone_config=dict(file["backbone_config"])).backbone_config
    part = specify(file).parts["backbone_config"]
    assert (len(part.layers), part.heads) == (config.num_hidden_layers, config.num_attention_heads)
    assert not config.use_relative_position_bias
    assert part.layers[0].encoding is None
