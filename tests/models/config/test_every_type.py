"""Test that every `model_type` in four shapes of file gives a specification or a one-line error.

The type of a text model built from top-level keys is determined in transformers.
"""

import re
from contextlib import suppress

import pytest
import transformers
from fuzz.configs import failure
from refusals import refused

from posenc.models.config import families, specify
from posenc.models.files.errors import ModelError

SIZES = {
    "num_hidden_layers": 2,
    "hidden_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 128,
}
HOSTILE = (  # under rope_parameters
    [],
    7,
    {"max_position_embeddings": {}},
    {"full_attention": {"rope_type": "yarn"}, "sliding_attention": None},
    {"rope_type": "yarn", "factor": 4.0, "rope_theta": {}},
    {"rope_type": {}, "mrope_section": {}},
)


def test_a_type_of_model_alone_is_read_or_refused_in_a_sentence():
    assert_no_traceback({})


def test_keys_at_the_top_are_read_or_refused_in_a_sentence():
    assert_no_traceback(SIZES)


def test_keys_of_a_text_model_inside_are_read_or_refused_in_a_sentence():
    assert_no_traceback({"text_config": SIZES})


@pytest.mark.parametrize("settings", HOSTILE, ids=str)
def test_settings_of_a_wrong_shape_are_read_or_refused_in_a_sentence(settings):
    assert_no_traceback({"rope_parameters": settings})


def assert_no_traceback(config):
    types = families.model_types()
    assert len(types) > 800
    wrong = {name: failure({"model_type": name} | config) for name in types}
    assert {name: said for name, said in wrong.items() if said} == {}


def flat_in_transformers(name):
    """Return the type of the text model that the class builds from top-level keys; "" if none."""
    kind = transformers.CONFIG_MAPPING[name]
    try:
        text = kind(num_hidden_layers=17).get_text_config()
    except Exception:  # no text model, or several
        return ""
    inside = type(text) is not kind
    return text.model_type if inside and text.num_hidden_layers == 17 else ""


def test_a_flat_file_is_the_text_model_that_transformers_makes_of_it():
    """Top-level keys have no effect if the class uses its own defaults."""
    read = set()
    for name in families.model_types():
        family = families.family(name)
        if family.kind != "parts":
            continue
        flat = flat_in_transformers(name)
        assert family.flat == flat, name
        config = {"model_type": name, **SIZES}
        if flat and not (why := families.family(flat).refused):
            assert len(specify(config).layers) == 2
            read.add(name)
            continue
        with pytest.raises(ModelError, match=re.escape(why if flat else "has no nested")):
            specify(config)
    assert read == {"qwen2_vl", "qwen2_5_vl", "paddleocr_vl", "fuyu", "glm5_next"}


def test_a_part_without_a_type_is_what_the_class_of_the_whole_takes_it_for():
    """Published files omit the type, or state one that the class ignores."""
    read = set()
    for name in families.model_types():
        kind = transformers.CONFIG_MAPPING[name]
        for key, known in families.family(name).inner.items():
            for stated in ({}, {"model_type": "bert"} if known.get("fixed") else {}):
                try:
                    part = getattr(kind(**{key: {**SIZES, **stated}}), key)
                except Exception:  # these sizes are invalid for it
                    continue
                own = families.family(known["model_type"])
                assert type(part) is transformers.CONFIG_MAPPING[known["model_type"]], (name, key)
                if own.refused or own.kind in ("parts", "nothing", "given"):
                    continue
                with suppress(ModelError):
                    spec = specify({"model_type": name, key: {**SIZES, **stated}}).parts[key]
                    assert spec.model == known["model_type"]
                    read.add(name)
    assert len(read) > 80


def test_the_defaults_of_voxtral_are_those_that_its_class_gives_a_llama():
    text = {"num_hidden_layers": 2, "hidden_size": 512, "num_attention_heads": 8}
    config = transformers.VoxtralConfig(text_config=dict(text)).text_config
    spec = specify({"model_type": "voxtral", "text_config": text}).text_stack
    (turn,) = spec.rotary
    assert (turn.base, turn.dim) == (config.rope_parameters["rope_theta"], config.head_dim)
    assert (turn.base, spec.groups, spec.context) == (1e8, 8, 131072)
    stated = {"model_type": "voxtral", "text_config": {**text, "rope_theta": 5e5}}
    assert specify(stated).text_stack.rotary[0].base == 5e5


def test_defaults_are_those_of_the_class_and_not_of_those_who_publish():
    """GLM-4V and MiniMax-M3 rotate half of a head only if the file states it.

    GLM-4V's class cannot rotate whole heads.
    """
    with refused(ModelError, "mrope_section", 64):
        specify({"model_type": "glm4v_text"})
    assert specify({"model_type": "minimax_m3_vl_text"}).rotary[0].turned == 128
