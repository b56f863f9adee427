"""Against the documented flags of servers, and what the extended config says to posenc."""

import json
import shlex
from math import log

import pytest
from published import published

from posenc.models.config import specify
from posenc.models.extend import extended
from posenc.models.serving import cache_bytes, gguf_keys, serving

QWEN3 = published("Qwen3-8B") | {"max_position_embeddings": 40960, "num_key_value_heads": 8}


def stretched(method, to=131072, **more):
    config, _ = extended(QWEN3, to, method, **more)
    return config, specify(config)


def lines(method, **more):
    config, spec = stretched(method, **more)
    return serving("Qwen/Qwen3-8B", config, spec, 131072)


def test_what_a_server_is_told_makes_the_same_spec():
    """The overrides, merged into the old config, are read as the new one."""
    _, spec = stretched("yarn")
    told = lines("yarn")
    for server, flag in (("vLLM", "--hf-overrides"), ("SGLang", "--json-model-override-args")):
        words = shlex.split(told[server])
        override = json.loads(words[words.index(flag) + 1])
        assert specify(QWEN3 | override) == spec
        assert words[-1] == "131072"
    assert "mlx_lm.load('Qwen/Qwen3-8B'" in told["MLX"]


@pytest.mark.parametrize(
    ("method", "more", "flags"),
    [
        ("yarn", {}, "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768"),
        ("linear", {}, "--rope-scaling linear --rope-scale 4"),
        ("base", {"base": 5e6}, "--rope-scaling none --rope-freq-base 5000000"),
        ("llama3", {}, "has no flag for llama3"),
    ],
)
def test_llama_cpp_is_told_by_its_flags(method, more, flags):
    assert flags in lines(method, **more)["llama.cpp"]


def test_settings_of_a_text_model_inside_are_told_inside():
    outer = {"model_type": "qwen3_vl", "text_config": published("Qwen3-VL-2B (text)")}
    config, _ = extended(outer, 1_000_000, "yarn")
    words = shlex.split(serving("m", config, specify(config), 1_000_000)["vLLM"])
    assert [*json.loads(words[words.index("--hf-overrides") + 1])] == ["text_config"]


def test_keys_of_a_gguf_file():
    keys = gguf_keys("qwen3", stretched("yarn")[1], 131072)
    assert keys["qwen3.rope.scaling.type"] == "yarn"
    assert keys["qwen3.rope.scaling.factor"] == 4
    assert keys["qwen3.rope.scaling.original_context_length"] == 32768
    assert keys["qwen3.context_length"] == 131072


def test_a_yarn_of_other_ends_and_gain_is_told_as_llama_cpp_multiplies_it():
    config, _ = stretched("yarn")
    config["rope_scaling"] |= {"beta_fast": 16.0, "attention_factor": 1.0}
    spec = specify(config)
    line = serving("m", config, spec, 131072)["llama.cpp"]
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
