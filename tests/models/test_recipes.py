"""Test the published recipes for context extension."""

import pytest

from posenc.models.extend import extended
from posenc.models.recipes import recipes


@pytest.mark.parametrize("recipe", recipes(), ids=lambda one: one.names)
def test_a_recipe_of_makers_is_written_as_they_give_it(recipe):
    """Each recipe has a source; by hand, the factor is 4, or 3 for Qwen3-VL."""
    assert recipe.source
    assert recipe.read.startswith("2026-")
    usual = {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 128}
    partly = usual | {"head_dim": 256, "partial_rotary_factor": 0.25}
    for model_type in recipe.model_types:
        config = partly if model_type.startswith(("qwen3_5", "qwen3_next", "qwen4")) else usual
        config = config | {"model_type": model_type, "num_hidden_layers": 4, "rope_theta": 1e6}
        config |= {"hidden_size": 512, "max_position_embeddings": recipe.context}
        for to in recipe.factors or {131072: 4.0}:
            after, _ = extended(config, to, "yarn")
            settings = after["rope_scaling"]
            assert settings["factor"] == (3.0 if "vl" in model_type else 4.0)
            assert settings["original_max_position_embeddings"] == recipe.trained
            assert after["max_position_embeddings"] == to
        # Any other length is stretched by the ratio, and other methods have no recipe
        to = 2 * recipe.trained
        assert extended(config, to, "yarn")[0]["rope_scaling"]["factor"] == 2.0
        linear = extended(config, 1_000_000, "linear")[0]["rope_scaling"]["factor"]
        assert linear == 1_000_000 / recipe.trained
