"""Test sinusoids of unusual forms against the functions of transformers that compute them."""

import pytest

pytest.importorskip("transformers")

import torch
from refusals import refused
from transformers import CONFIG_MAPPING

from posenc.models.config import specify
from posenc.models.config.spec import PatchWaves, Waves
from posenc.models.files.errors import ModelError, Unread
from tools import watched


def rows_of(table, pos):
    encoding = table.encoding()
    return encoding.on_embeddings(torch.zeros(len(pos), table.width), encoding.prepare(pos))


@pytest.mark.parametrize("name", ["musicgen_decoder", "musicgen_melody_decoder"])
def test_musicgen_has_the_cosines_first(name):
    """Compare with the weights of its module."""
    config = CONFIG_MAPPING[name](hidden_size=32, num_hidden_layers=1, max_position_embeddings=40)
    table = specify(config.to_dict()).embedding
    assert isinstance(table, Waves)
    module = next(
        kind
        for one in watched.modules(type(config))
        for n, kind in vars(one).items()
        if n.endswith("SinusoidalPositionalEmbedding")
    )
    rows = rows_of(table, torch.arange(40))
    torch.testing.assert_close(rows, module.get_embedding(40, 32), atol=1e-5, rtol=1e-5)
    assert rows[0, 0] == 1


@pytest.mark.parametrize("longest", [10_000, 500])
def test_timesfm_counts_patches_of_a_series(longest):
    from transformers.models.timesfm.modeling_timesfm import TimesFmPositionalEmbedding

    sizes = dict(hidden_size=32, use_positional_embedding=True, max_timescale=longest)
    config = CONFIG_MAPPING["timesfm"](**sizes)
    table = specify(config.to_dict()).embedding
    true = TimesFmPositionalEmbedding(config)(40)[0]
    torch.testing.assert_close(rows_of(table, torch.arange(40)), true, atol=1e-5, rtol=1e-5)
    assert specify({"model_type": "timesfm"}).embedding is None
    with refused(Unread, "min_timescale", 2):
        specify({**config.to_dict(), "min_timescale": 2})


def test_the_text_of_videoprism_has_sines_and_then_cosines():
    from transformers.models.videoprism.modeling_videoprism import create_sinusoidal_positions

    spec = specify({"model_type": "videoprism_text_model", "hidden_size": 32})
    true = create_sinusoidal_positions(64, 32)
    torch.testing.assert_close(rows_of(spec.embedding, torch.arange(64)), true)
    assert {layer.softcap for layer in spec.layers} == {50.0}


def test_the_sinusoids_of_mae_have_the_column_first():
    """Compare with the rows of a new model of 3 × 3 patches; those of the class token are 0."""
    from transformers.models.vit_mae.modeling_vit_mae import ViTMAEEmbeddings

    sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    config = CONFIG_MAPPING["vit_mae"](**sizes, image_size=12, patch_size=4)
    module = ViTMAEEmbeddings(config)
    module.initialize_weights()
    table = specify(config.to_dict()).embedding
    assert isinstance(table, PatchWaves)
    stored = module.position_embeddings[0]
    torch.testing.assert_close(rows_of(table, table.points(3, 3)), stored[1:])
    assert not stored[0].any()
    with refused(ModelError, "hidden_size", 34, "multiple of 4"):
        specify({**config.to_dict(), "hidden_size": 34})
