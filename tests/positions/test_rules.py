"""The rules of multimodal ids: which there are, and what a config changes in them."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import transformers

from posenc.positions.rules import RULES, rule_of


def test_every_folder_that_numbers_pictures_has_a_rule():
    """The folders of the installed transformers: a new one turns this red."""
    models = Path(transformers.__file__).parent / "models"
    folders = {
        file.parent.name
        for file in models.glob("*/modeling_*.py")
        if "def get_rope_index" in file.read_text("utf-8")
    }
    assert folders == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_the_defaults_of_the_class_of_its_config(name: str):
    """The config class of transformers, whose numbers a rule takes over where they differ."""
    assert rule_of(transformers.AutoConfig.for_model(name)) == rule_of(name)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_has_a_name_and_known_kinds(name: str):
    rule = RULES[name]
    assert rule.name == name
    assert set(rule.kinds) <= set(range(6))
    assert rule.note or rule.kinds == (0, 1, 2)


def test_a_config_changes_the_numbers_of_its_rule():
    config = {"model_type": "qwen2_5_vl", "vision_config": {"tokens_per_second": 2}}
    assert rule_of(config).per_second == 2
    assert rule_of(config).merge == 2
    inner = {"position_id_per_seconds": 13, "vision_config": {"spatial_merge_size": 4}}
    omni = rule_of({"model_type": "qwen3_omni_moe", "thinker_config": inner})
    assert (omni.per_second, omni.merge) == (13, 4)
    assert rule_of(inner | {"model_type": "qwen3_omni_moe_thinker"}) == omni
    sections = {"rope_scaling": {"xdrope_section": [16] * 4}}
    assert rule_of({"model_type": "hunyuan_vl", **sections}).axes == RULES["hunyuan_vl"].axes
    assert rule_of({"model_type": "minicpmv4_7", "downsample_mode": "4x"}).merge == 2


def test_what_is_no_rule_is_refused():
    with pytest.raises(TypeError, match="`rule` must be"):
        rule_of(3)
    with pytest.raises(ValueError, match="got None"):
        rule_of({})
    with pytest.raises(ValueError, match="got 'llama'"):
        rule_of(SimpleNamespace(to_dict=lambda: {"model_type": "llama"}))


@pytest.mark.parametrize("inner", [None, [], 3, {"spatial_merge_size": None}])
def test_a_config_without_vision_settings_has_those_of_its_class(inner: object):
    assert rule_of({"model_type": "qwen2_vl", "vision_config": inner}) == rule_of("qwen2_vl")


def test_numbers_that_no_rule_can_have_are_refused():
    with pytest.raises(ValueError, match="`merge`"):
        rule_of({"model_type": "qwen2_vl", "vision_config": {"spatial_merge_size": 0}})
    rate = {"vision_config": {"tokens_per_second": -1}}
    with pytest.raises(ValueError, match="`per_second`"):
        rule_of({"model_type": "qwen2_5_vl", **rate})
    sections = {"rope_parameters": {"mrope_section": [1] * 100}}
    with pytest.raises(ValueError, match="100"):
        rule_of({"model_type": "hunyuan_vl", **sections})
