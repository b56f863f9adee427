"""Test that each variant changes one setting, and none is equal to the config."""

import pytest
from published import KINDS, MODELS, published

from posenc.models.check.differences import differences
from posenc.models.check.loss import OneSide, one_side
from posenc.models.check.variants import further, variants
from posenc.models.config import specify


@pytest.mark.parametrize("name", [name for name in MODELS if name in KINDS])
def test_each_reading_differs_from_the_config_and_from_the_others(name):
    spec = specify(published(name))
    found = variants(spec)
    assert {"none", "layout", "base", "multiple"} <= {variant.kind for variant in found}
    assert len({variant.name for variant in found}) == len(found)
    for number, variant in enumerate(found):
        changed = bool(differences(spec, variant.spec))
        # Permuted rows of queries or keys do not change the spec
        assert changed != bool(variant.rows)
        others = [other for other in found[:number] if other.rows == variant.rows == ""]
        assert all(differences(variant.spec, other.spec) for other in others)


def test_a_second_change_is_of_another_key_and_differs_from_the_first_alone():
    spec = specify(published("Llama-3.1-8B-Instruct"))
    (first,) = (variant for variant in variants(spec) if variant.name == "base 10,000")
    pairs = further(first)
    assert {"base 10,000, and factor 4", "base 10,000, and not scaled"} <= {x.name for x in pairs}
    assert not any(variant.kind == "base, and base" for variant in pairs)
    for pair in pairs:
        assert differences(first.spec, pair.spec) or pair.rows


def names(name):
    return [variant.name for variant in variants(specify(published(name)))]


def test_what_a_config_has_is_taken_away_and_what_it_lacks_is_given():
    assert {"not scaled", "factor 4", "factor 16", "yarn ×8"} <= {*names("Llama-3.1-8B-Instruct")}
    assert {"yarn ×4", "linear ×2", "llama3 ×8", "half of the channels"} <= {*names("Qwen3-8B")}
    assert {"all channels", "exponents of the whole head"} <= {*names("GPT-NeoX-20B / Pythia")}
    windows = {"no window", "a window of 128", "a window of 256", "a window of 1,024"}
    assert windows <= {*names("Gemma-3-270m")}
    shares = {"half of the channels", "three quarters of the channels"}
    assert shares <= {*names("GPT-NeoX-20B / Pythia")}
    assert "short and long factors exchanged" in names("Phi-3.5-mini-instruct")
    assert {"cos and sin not scaled", "cos and sin scaled twice"} <= {*names("gpt-oss-20b/120b")}


def test_a_yarn_whose_gain_was_set_to_1_is_read_with_its_own_too():
    yarn = dict(type="yarn", factor=4.0, original_max_position_embeddings=32768)
    config = published("Qwen3-8B") | {"rope_scaling": yarn | {"attention_factor": 1.0}}
    found = [variant.name for variant in variants(specify(config))]
    assert "cos and sin × 1.139, as YaRN has them" in found


def test_a_model_that_turns_nothing_has_no_other_reading():
    bert = {"model_type": "bert", "num_hidden_layers": 2, "num_attention_heads": 4}
    assert variants(specify(bert | {"hidden_size": 64, "max_position_embeddings": 64})) == []


CONFIGS = {name: published(name) for name in ("Qwen3-8B", "Llama-3.1-8B-Instruct")}


@pytest.mark.parametrize(
    ("config", "tried"),
    [*((config, True) for config in CONFIGS.values()), ({"model_type": "ministral3"}, False)],
    ids=[*CONFIGS, "ministral3"],
)
def test_rows_of_one_side_are_tried_only_where_they_change_an_encoding(config, tried):
    """Ministral 3 adds a temperature to its RoPE, so the passes would repeat the config's loss."""
    spec = specify(config).text_stack
    rows = [variant.rows for variant in variants(spec) if variant.rows]
    assert rows == (["q", "k"] if tried else [])
    made = zip(spec.layers, spec.encodings(64, "half"), strict=True)
    assert any(type(one_side("q", *pair)) is OneSide for pair in made) == tried
