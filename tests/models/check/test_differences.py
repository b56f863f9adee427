"""Test pairs of configs with the same meaning, and pairs with one difference."""

import json

import numpy as np
import pytest
from published import published
from weight_files import save_gguf

from posenc.models.check.differences import compare, differences
from posenc.models.config import specify

LLAMA = published("Llama-3.1-8B-Instruct")


def told(config, other):
    return [str(difference) for difference in differences(specify(config), specify(other))]


def test_the_spelling_does_not_count():
    scaling = LLAMA["rope_scaling"] | {"rope_theta": LLAMA["rope_theta"]}
    new = {key: value for key, value in LLAMA.items() if key not in ("rope_scaling", "rope_theta")}
    assert told(LLAMA, new | {"rope_parameters": scaling}) == []
    assert told(LLAMA, LLAMA | {"head_dim": 128.0}) == []


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"rope_theta": 1e4}, "layers 0–7: frequencies: RoPE, 128 channels, base 500,000, llama3"),
        ({"max_position_embeddings": 4096}, "context: 131,072 ≠ 4,096"),
        ({"num_hidden_layers": 4}, "layers: 8 ≠ 4"),
        ({"num_key_value_heads": 8}, "key heads: 4 ≠ 8"),
        ({"model_type": "cohere"}, "layers 0–7: layout: half ≠ interleaved"),
        ({"model_type": "mistral", "sliding_window": 512}, "layers 0–7: window: none ≠ 512"),
        (
            {"model_type": "phi", "partial_rotary_factor": 0.5},
            "rotated channels: 128 of 128 ≠ 64",
        ),
    ],
)
def test_what_differs_is_said_once_for_all_layers(keys, says):
    lines = told(LLAMA, LLAMA | keys)
    assert any(says in line for line in lines)
    assert len(lines) == len(set(lines)) <= 3


def test_a_gain_and_a_softmax_scale_differ():
    yarn = dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=8192)
    lines = told(
        LLAMA | {"rope_scaling": yarn}, LLAMA | {"rope_scaling": yarn | {"attention_factor": 1.0}}
    )
    assert lines == ["layers 0–7: factor of cos and sin: 1.20794 ≠ 1"]
    granite = LLAMA | {"model_type": "granite", "attention_multiplier": 0.0625}
    assert "layers 0–7: softmax scale: 0.0883883 ≠ 0.0625" in told(LLAMA, granite)


def test_a_config_and_its_gguf_say_the_same_whatever_the_order_of_rows(tmp_path):
    keys = {"context_length": 128, "embedding_length": 64, "block_count": 2}
    keys |= {"attention__head_count": 4, "attention__head_count_kv": 2}
    values = {f"llama__{key}": ("uint32", value) for key, value in keys.items()}
    values["llama__rope__freq_base"] = ("float32", 5000.0)
    save_gguf(tmp_path / "a.gguf", {"token_embd.weight": np.zeros((2, 4), np.float32)}, **values)
    sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    same = {"model_type": "llama", "max_position_embeddings": 128, "rope_theta": 5000.0, **sizes}
    config = tmp_path / "config.json"
    config.write_text(json.dumps(same))
    assert compare(config, tmp_path / "a.gguf") == []
    config.write_text(json.dumps(same | {"rope_theta": 10_000.0}))
    (difference,) = compare(tmp_path, tmp_path / "a.gguf")
    assert (difference.what, difference.layers) == ("frequencies", (0, 1))


def test_a_gptneox_that_turns_whole_heads_equals_its_gguf(tmp_path):
    """RedPajama-INCITE, open-calm and rinna have such files."""
    keys = {"context_length": 128, "embedding_length": 64, "block_count": 2}
    keys |= {"attention__head_count": 4, "rope__dimension_count": 16}
    values = {f"gptneox__{key}": ("uint32", value) for key, value in keys.items()}
    values["general__architecture"] = ("string", "gptneox")
    save_gguf(tmp_path / "a.gguf", {"token_embd.weight": np.zeros((2, 4), np.float32)}, **values)
    sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    config = {"model_type": "gpt_neox", "max_position_embeddings": 128, "rotary_pct": 1.0, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert compare(tmp_path / "config.json", tmp_path / "a.gguf") == []


def test_each_side_of_a_difference_has_its_own_words():
    yarn = dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=8192)
    one, two = (LLAMA | {"rope_scaling": yarn | {"truncate": value}} for value in (True, False))
    (difference,) = differences(specify(one), specify(two))
    assert difference.first != difference.second
    assert difference.first.endswith("truncate yes")
    assert difference.second.endswith("truncate no")
