"""Test the sentences of `inspect` about the numbering of images against ids computed by hand."""

import pytest

from posenc.models.inspection import inspect
from posenc.models.numbering import numbering
from posenc.positions.rules import RULES

QWEN = {"model_type": "qwen2_5_vl", "vision_config": {"spatial_merge_size": 2}}


@pytest.mark.parametrize("name", RULES)
def test_the_rule_of_every_model_is_named(name: str):
    sentences = numbering({"model_type": name})
    assert repr(name) in sentences[0]


def test_the_example_shows_ids_and_delta():
    example = next(s for s in numbering(QWEN) if "example" in s)
    points = "(0, 0, 0) (1, 1, 1) (2, 2, 2) (2, 2, 3) (2, 3, 2) (2, 3, 3) (4, 4, 4)"
    assert points in example
    assert example.endswith("delta -2")


def test_the_cost_of_no_delta_is_the_tokens_of_a_picture_less_its_side():
    assert "756 positions" in numbering(QWEN)[-1]
    assert 28 * 28 - 28 == 756


def test_a_model_whose_delta_is_0_is_not_warned_about():
    assert not any("without it" in s for s in numbering({"model_type": "hunyuan_vl"}))


def test_a_model_without_a_rule_has_no_sentence():
    assert numbering({"model_type": "llama"}) == []


def test_inspect_reports_the_rule():
    text = {"model_type": "qwen2_5_vl_text", "num_hidden_layers": 1, "hidden_size": 3584}
    text |= {"num_attention_heads": 28, "num_key_value_heads": 4, "rope_theta": 1e6}
    notes = inspect(QWEN | {"text_config": text}).spec.notes
    assert any("'qwen2_5_vl'" in note for note in notes)
    assert not any("multimodal" in note for note in inspect(text).spec.notes)


@pytest.mark.parametrize("merge", [0, -2, "two", 1.5, [2]])
def test_a_config_that_cannot_be_read_is_named(merge: object):
    values = {"model_type": "qwen2_vl", "vision_config": {"spatial_merge_size": merge}}
    assert any("`merge`" in sentence for sentence in numbering(values))
