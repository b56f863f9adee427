"""Test the Fourier features of prompt encoders against transformers' own modules."""

import pytest

pytest.importorskip("transformers")

import torch
from transformers import CONFIG_MAPPING

from posenc.models.config import specify
from posenc.models.config.families import by_hand, named_by_hand, prompts
from posenc.models.config.spec import PointWaves
from tools import watched

GIVEN = sorted(name for name in named_by_hand() if by_hand(name).get("kind") == "given")


def classes(config_class):
    modules = [vars(module) for module in watched.modules(config_class)]
    return {name: kind for one in modules for name, kind in one.items() if isinstance(kind, type)}


@pytest.mark.parametrize("name", prompts.MODELS.split())
def test_a_prompt_encoder_has_the_features_of_its_specification(name):
    """Compare points of an image with the features of a module with the same random directions."""
    config = CONFIG_MAPPING[name](hidden_size=24)
    (kind,) = (k for n, k in classes(type(config)).items() if n.endswith("PositionalEmbedding"))
    # SAM and SAM-HQ state the directions in the vision config
    config.num_pos_feats, config.scale = 12, 1
    module = kind(config)
    spec = specify(config.to_dict())
    assert spec.embedding == PointWaves(24)
    points = torch.rand(1, 2, 7, 2)
    made = spec.embedding.rows_of(module.positional_embedding, points)
    torch.testing.assert_close(made, module(points.clone()))


@pytest.mark.parametrize("name", GIVEN)
def test_a_part_without_positions_of_its_own_says_so_in_a_note(name):
    spec = specify({"model_type": name})
    assert (spec.kind, spec.layers, spec.embedding) == ("given", (), None)
    assert "another part" in " ".join(spec.notes)
