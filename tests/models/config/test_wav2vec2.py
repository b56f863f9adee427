"""Test the convolutions of wav2vec 2.0 and its kin against transformers' own modules."""

import pytest

pytest.importorskip("transformers")

from torch import nn
from transformers import CONFIG_MAPPING

from posenc.models.config import specify
from posenc.models.config.families import wav2vec2
from posenc.models.config.spec import Convolution
from tools import watched

SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40)


@pytest.mark.parametrize("name", wav2vec2.MODELS.split())
def test_the_convolution_has_the_kernel_and_groups_of_its_specification(name):
    """Compare every convolution of positions in the model; its layers have no positions."""
    config = CONFIG_MAPPING[name](**SIZES, num_conv_pos_embedding_groups=4)
    spec, model = specify(config.to_dict()), watched.built(config)
    found = [
        (module.out_channels, module.kernel_size[0], module.groups)
        for path, module in model.named_modules()
        if "pos_conv_embed" in path and isinstance(module, nn.Conv1d)
    ]
    assert isinstance(spec.embedding, Convolution)
    kernel = (spec.embedding.width, spec.embedding.kernel, spec.embedding.groups)
    assert found == [kernel] * spec.embedding.count
    assert [layer.encoding for layer in spec.layers] == [None, None]
    rest = [n for n, _ in model.named_parameters() if "pos" in n and "pos_conv_embed" not in n]
    assert rest == []
