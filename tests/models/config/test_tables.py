"""Test tables and sinusoids that are added to embeddings against sizes computed by hand."""

import pytest
from refusals import refused

from posenc import Learned, Sinusoidal
from posenc.models.config import specify
from posenc.models.config.spec import Table, Waves
from posenc.models.files.errors import ModelError


def test_models_that_add_rows():
    gpt2 = specify({"model_type": "gpt2", "n_positions": 64, "n_embd": 32, "n_head": 4})
    assert gpt2.embedding == Table(64, 32)
    roberta = {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}
    assert specify(roberta).embedding == Table(512, 768, offset=2)
    opt = {"model_type": "opt", "max_position_embeddings": 2048, "hidden_size": 64}
    assert specify(opt | {"num_attention_heads": 4}).embedding == Table(2048, 64, offset=2)
    assert isinstance(gpt2.embedding.encoding(), Learned)
    whisper = specify({"model_type": "whisper"})
    waves = whisper.parts["encoder"].embedding
    assert isinstance(waves, Waves)
    assert (waves.halves, waves.closed, waves.rows) == (True, True, 1500)
    assert isinstance(waves.encoding(), Sinusoidal)
    assert whisper.parts["decoder"].embedding.rows == 448
    assert whisper.text_stack is whisper.parts["decoder"]


def test_a_table_of_patches_has_a_row_for_each_and_one_for_the_class():
    """224 pixels contain 14 patches of 16; an image of 224 by 96 pixels contains 14 by 6."""
    assert specify({"model_type": "vit"}).embedding == Table(14 * 14 + 1, 768)
    assert specify({"model_type": "vit", "image_size": [224, 96]}).embedding == Table(
        14 * 6 + 1, 768
    )
    with refused(ModelError, "image_size"):
        specify({"model_type": "vit", "image_size": [224, 96, 3]})


def test_rows_may_have_other_channels_than_layers():
    """ALBERT's embeddings are narrower than its layers."""
    config = {"model_type": "albert", "embedding_size": 24, "hidden_size": 96}
    assert specify(config | {"num_attention_heads": 4}).embedding == Table(512, 24)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"model_type": "bert", "max_position_embeddings": 2**40}, ["max_position_embeddings"]),
        ({"model_type": "roberta", "max_position_embeddings": 2}, ["max_position_embeddings"]),
        (
            {"model_type": "bert", "position_embedding_type": "relative_key"},
            ["position_embedding_type"],
        ),
        ({"model_type": "xglm", "d_model": 33, "attention_heads": 3}, ["d_model"]),
    ],
)
def test_impossible_tables_are_refused_by_their_key(config, key):
    with refused(ModelError, *key):
        specify(config)
