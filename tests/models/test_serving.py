"""Test printed options against the file that `extend` writes, and the flags of llama.cpp.

Options are applied to config objects of transformers as each server applies them.
"""

import json
from math import log

import pytest
import torch
from published import published
from refusals import refused
from server_words import (
    METHODS,
    SMALL,
    WAYS,
    apply,
    differences,
    loaded,
    meaning,
    shapes,
    stretched,
    tried,
    words_of,
)

from posenc.models.config import specify
from posenc.models.extend import extended
from posenc.models.files.errors import ModelError
from posenc.models.serving import cache_bytes, gguf_keys, serving, serving_folder

QWEN3 = published("Qwen3-8B") | {"max_position_embeddings": 40960, "num_key_value_heads": 8}


def longer(method, to=131072, **more):
    config, _ = extended(QWEN3, to, method, **more)
    return config, specify(config)


def lines(method, **more):
    config, spec = longer(method, **more)
    return serving("Qwen/Qwen3-8B", QWEN3, config, spec, 131072)


@pytest.mark.parametrize("new", [False, True], ids=["v4", "v5"])
@pytest.mark.parametrize("name", shapes(new=False))
@pytest.mark.parametrize("way", WAYS)
def test_an_option_gives_the_rotation_of_the_written_file(new, name, way):
    """Compare θ, gain and length in transformers' modules; every method has a command."""
    before = shapes(new)[name]
    found = {method: differences(before, method, *WAYS[way]) for method in tried(before)}
    if "text_config" in before and way == "config.update":
        # Older versions of SGLang fail; the command names a newer version
        assert set(found.values()) == {"AttributeError"}
        after, to = stretched(before, "yarn")
        line = serving("m", before, after, specify(after), to)["SGLang"]
        assert "# SGLang 0.5.23 or later" in line
    else:
        assert set(found.values()) == {""}


@pytest.mark.parametrize("way", WAYS)
def test_an_option_changes_nothing_in_the_written_file(way):
    """After `extend` in place, the folder in the command has the new config."""
    server, applied = WAYS[way]
    for name, before in shapes(new=False).items():
        if "text_config" in before:
            continue
        after, to = stretched(before, tried(before)[-1])
        config = loaded(after)
        words = words_of(serving("m", before, after, specify(after), to)[server])
        apply(applied, config, words)
        got, wanted = meaning(config, to), meaning(loaded(after), to)
        assert got.keys() == wanted.keys(), name
        assert all(torch.equal(got[key], wanted[key]) for key in got), name


def test_settings_inside_two_configs_have_no_option_in_sglang():
    """SGLang sets attributes of the outer config, so the inner one would become a dictionary."""
    text = published("Qwen3-VL-2B (text)") | {"model_type": "qwen3_omni_moe_text"}
    before = {
        "model_type": "qwen3_omni_moe",
        "thinker_config": {"model_type": "qwen3_omni_moe_thinker", "text_config": text},
    }
    after, _ = extended(before, 1_000_000, "yarn")
    told = serving("m", before, after, specify(after), 1_000_000)
    assert words_of(told["SGLang"]) is None
    assert "Serve the folder" in told["SGLang"]
    assert words_of(told["vLLM"])["thinker_config"]["text_config"]["rope_parameters"]["factor"] > 3


def test_stacks_that_share_the_settings_of_the_whole_have_options_too():
    before = {"model_type": "hrm_text"}
    after, _ = extended(before, 4096, "yarn")
    words = words_of(serving("m", before, after, specify(after), 4096)["vLLM"])
    assert words["rope_parameters"]["rope_type"] == "yarn"


@pytest.mark.parametrize("outer", ["", "cohere_compass"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("way", ["vLLM 0.33", "SGLang 0.5.23"])
def test_a_base_that_is_left_to_the_class_is_written_by_type_of_layer(outer, method, way):
    """Cohere Compass rejects other settings; θ is compared with its rotary module, base 10,000."""
    before = SMALL | {"model_type": "cohere_compass_text", "max_position_embeddings": 8192}
    before = {"model_type": outer, "text_config": before} if outer else before
    assert differences(before, method, *WAYS[way]) == ""
    after, to = stretched(before, "linear")
    slowest = meaning(loaded(after), to)["full_attention_inv_freq"][-1]
    assert slowest == pytest.approx(10_000 ** (-62 / 64) / 4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("stated", "base"),
    [
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, 10_000),
        ({"rope_parameters": {"rope_type": "default"}}, 10_000),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 50_000.0}}, 50_000),
    ],
    ids=["no base for a type of layer", "no base and no types", "no types"],
)
def test_what_no_class_opens_is_completed(stated, base, method):
    """The written file, and the old one with each server's option, by the class's own module."""
    before = SMALL | {"model_type": "cohere_compass_text", "max_position_embeddings": 8192}
    before |= stated
    with pytest.raises((KeyError, TypeError)):
        meaning(loaded(before), 8192)
    assert {differences(before, method, *way) for way in WAYS.values()} == {""}
    after, to = stretched(before, "linear")
    slowest = meaning(loaded(after), to)["full_attention_inv_freq"][-1]
    assert slowest == pytest.approx(base ** (-62 / 64) / 4)


@pytest.mark.parametrize("method", METHODS)
def test_a_base_that_the_class_ignores_is_named(method):
    before = SMALL | {"model_type": "cohere_compass_text", "max_position_embeddings": 8192}
    with refused(ModelError, "rope_theta", 50_000.0, "rope_parameters"):
        stretched(before | {"rope_theta": 50_000.0}, method)


def test_a_share_of_channels_stays_whole_channels():
    """52 · (30 / 52) in floats is slightly below 30, and readers round down."""
    before = shapes(new=False)["phi"] | {"head_dim": 52, "partial_rotary_factor": 0.58}
    after, _ = extended(before, 8192, "yarn")
    told = words_of(serving("m", before, after, specify(after), 8192)["vLLM"])
    assert int(52 * told["rope_parameters"]["partial_rotary_factor"]) == 30


def test_an_option_for_a_config_in_the_old_spelling_states_both():
    """transformers 4 reads `rope_scaling` and `rope_theta`, transformers 5 `rope_parameters`."""
    for server in ("vLLM", "SGLang"):
        words = words_of(lines("yarn")[server])
        assert words["rope_scaling"] == words["rope_parameters"]
        assert words["rope_theta"] == words["rope_parameters"]["rope_theta"] == 1e6


def test_mlx_receives_the_keys_of_the_file_that_changed():
    """mlx_lm.load updates the dictionary of config.json with them."""
    config, spec = longer("yarn")
    line = serving("m", QWEN3, config, spec, 131072)["MLX"]
    assert QWEN3 | json.loads(line.split("'")[3]) == config
    nested = {"model_type": "qwen3_vl", "text_config": published("Qwen3-VL-2B (text)")}
    after, _ = extended(nested, 1_048_576, "yarn")
    assert "Serve the folder" in serving("m", nested, after, specify(after), 1_048_576)["MLX"]


def test_each_server_can_serve_the_folder():
    told = serving_folder("my models/q", 131072)
    assert told["vLLM"] == "vllm serve 'my models/q' --max-model-len 131072"
    assert told.keys() == lines("yarn").keys()


def test_a_factor_that_is_given_counts_before_the_recipe():
    config = published("Qwen3.5-9B (text)")
    after, _ = extended(config, 1_000_000, "yarn", trained=250_000)
    assert after["rope_scaling"]["factor"] == 4.0
    assert after["rope_scaling"]["original_max_position_embeddings"] == 250_000


@pytest.mark.parametrize(
    ("method", "more", "flags"),
    [
        ("yarn", {}, "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768"),
        ("linear", {}, "--rope-scaling linear --rope-scale 4"),
        ("base", {"base": 5e6}, "--rope-scaling none --rope-freq-base 5000000"),
        ("llama3", {}, "has no option for llama3"),
    ],
)
def test_llama_cpp_is_told_by_its_flags(method, more, flags):
    assert flags in lines(method, **more)["llama.cpp"]


def test_llama_cpp_has_no_option_for_layers_that_turn_differently():
    """Options of llama.cpp apply to all layers, but Gemma 3 must not extend sliding layers."""
    before = shapes(new=False)["gemma3_text"]
    after, to = stretched(before, "yarn")
    told = serving("m", before, after, specify(after), to)
    assert "Serve the folder" in told["llama.cpp"]
    # transformers 4 has no settings by type of layer: tests/server_words.md
    assert told["vLLM"].endswith("# needs transformers 5; older versions ignore rope_parameters")


def test_keys_of_a_gguf_file():
    keys = gguf_keys("qwen3", longer("yarn")[1], 131072)
    assert keys["qwen3.rope.scaling.type"] == "yarn"
    assert keys["qwen3.rope.scaling.factor"] == 4
    assert keys["qwen3.rope.scaling.original_context_length"] == 32768
    assert keys["qwen3.context_length"] == 131072


def test_a_yarn_of_other_ends_and_gain_is_told_as_llama_cpp_multiplies_it():
    config, _ = longer("yarn")
    config["rope_scaling"] |= {"beta_fast": 16.0, "attention_factor": 1.0}
    spec = specify(config)
    line = serving("m", QWEN3, config, spec, 131072)["llama.cpp"]
    assert line.endswith("--yarn-orig-ctx 32768 --yarn-beta-fast 16 --yarn-attn-factor 0.878249")
    keys = gguf_keys("qwen3", spec, 131072)
    assert keys["qwen3.rope.scaling.yarn_beta_fast"] == 16
    assert keys["qwen3.rope.scaling.yarn_attn_factor"] * (1 + 0.1 * log(4)) == pytest.approx(1)


def test_a_cache_is_keys_and_values_of_each_layer_up_to_its_window():
    spec = specify(QWEN3)
    assert cache_bytes(spec, 131072) == 8 * 2 * 8 * 128 * 131072 * 2
    gemma = specify(published("Gemma-3-270m"))
    sliding = sum(layer.window is not None for layer in gemma.layers)
    per_token = 2 * gemma.groups * 256 * 2
    far = (len(gemma.layers) - sliding) * 8192
    assert cache_bytes(gemma, 8192) == per_token * (far + sliding * 512)
