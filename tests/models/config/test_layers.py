"""Test the rotated layers and the windows of published models."""

import pytest
from published import published
from refusals import refused
from transformers import Zamba2Config

from posenc import NoPE, Sum
from posenc.encodings.temperature import Temperature
from posenc.models.config import specify
from posenc.models.config.spec import QueryScale
from posenc.models.files.errors import ModelError


def bare(config):
    return [layer.encoding is None for layer in specify(config).text_stack.layers]


def test_layers_without_encoding():
    """A 1 in `no_rope_layers` of Llama 4 and SmolLM3 means that the layer is rotated."""
    fourth = [False, False, False, True] * 2
    assert bare(published("Llama-4-Scout-17B-16E (text)")) == fourth
    assert bare(published("SmolLM3-3B (class default)")) == fourth
    assert bare(published("EXAONE-4.0-32B") | {"sliding_window": 4096}) == fourth
    flags = {"no_rope_layers": [1, 0, 1, 1, 1, 1, 0, 1]}
    expected = [flag == 0 for flag in flags["no_rope_layers"]]
    assert bare(published("SmolLM3-3B (class default)") | flags) == expected


def test_llama_4_chunks_the_layers_that_turn():
    config = published("Llama-4-Scout-17B-16E (text)") | {"attention_chunk_size": 8192}
    config["no_rope_layers"] = [1, 1, 0, 1, 1, 1, 0, 1]
    spec = specify(config)
    assert [x.window for x in spec.layers] == [8192, 8192, None, 8192] * 2
    assert [x.encoding is None for x in spec.layers] == [False, False, True, False] * 2


def test_exaone_without_windows_turns_everywhere():
    assert not any(bare(published("EXAONE-4.0-32B") | {"sliding_window": None}))


def test_queries_sharpened_far_into_a_text():
    config = published("Llama-4-Scout-17B-16E (text)")
    config |= {"attn_temperature_tuning": True, "floor_scale": 8192, "attn_scale": 0.1}
    layers = specify(config).layers
    assert [layer.temperature for layer in layers] == ([None] * 3 + [QueryScale(8192, 0.1, 1)]) * 2
    made = specify(config).encodings()[3]
    assert isinstance(made, Sum)
    assert [type(part) for part in made] == [NoPE, Temperature]
    config = published("Ministral-3 (class default)")
    config["rope_scaling"] = {**config["rope_scaling"], "llama_4_scaling_beta": 0.1}
    assert {layer.temperature for layer in specify(config).layers} == {QueryScale(16384, 0.1, 0)}


LLAMA_3 = {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 131072}
LLAMA_3 |= {"low_freq_factor": 1.0, "high_freq_factor": 32.0}


def attending(model_type, **config):
    layers = specify({"model_type": model_type, "num_hidden_layers": 8, **config}).layers
    return [n for n, layer in enumerate(layers) if layer.attends]


def test_words_of_older_files_mean_what_transformers_takes_them_for():
    """Granite 4, Qwen3-Next and MiniMax were published with these names."""
    types = ["mamba", "mamba", "mamba", "attention"] * 2
    for model_type in ("granitemoehybrid", "qwen3_next", "minimax", "olmo_hybrid"):
        assert attending(model_type, layer_types=types) == [3, 7]
    sparse = ["deepseek_sparse_attention"] * 8
    assert attending("deepseek_v32", layer_types=sparse) == [*range(8)]
    spec = specify({"model_type": "granitemoehybrid", "num_hidden_layers": 2})
    assert [layer.kind for layer in spec.layers] == ["linear_attention"] * 2


def test_letters_and_numbers_of_layers_say_which_attend():
    """Test published configs of Nemotron-H, Nemotron 3 and Kimi-Linear."""
    pattern = "M-M*-ME*"
    assert attending("nemotron_h", hybrid_override_pattern=pattern) == [3, 7]
    spec = specify({"model_type": "nemotron_h", "hybrid_override_pattern": 4 * pattern})
    assert len(spec.layers) == 32
    assert {layer.kind for layer in spec.layers} == {*("full_attention", "linear_attention")} | {
        *("mlp", "moe")
    }
    lists = {"full_attn_layers": [4, 8], "kda_layers": [1, 2, 3, 5, 6, 7]}
    assert attending("kimi_linear", linear_attn_config=lists) == [3, 7]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M*X"}, "have a letter for each"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": 3}, "must have a letter for each"),
        (
            {
                "model_type": "kimi_linear",
                "linear_attn_config": {"full_attn_layers": [1, 3], "kda_layers": [3]},
            },
            "linear_attn_config: must list each layer once",
        ),
        (
            {"model_type": "qwen3_next", "num_hidden_layers": 1, "layer_types": ["banded"]},
            "layer_types: must be layer types of qwen3_next, got 'banded', allowed",
        ),
        (
            {"model_type": "gemma2", "num_hidden_layers": 1, "layer_types": ["mamba"]},
            "must be layer types of gemma2, got 'linear_attention'",
        ),
        (
            {"model_type": "new", "num_hidden_layers": 1, "layer_types": ["mamba"]}
            | {"rope_theta": 1e4, "head_dim": 8, "num_attention_heads": 2},
            "must be layer types of posenc, got 'linear_attention'",
        ),
        (
            {"model_type": "minimax_m1", "num_hidden_layers": 2, "attn_type_list": [0, 1]}
            | {"rope_theta": 1e4, "head_dim": 8, "num_attention_heads": 2},
            "attn_type_list: posenc does not support minimax_m1: the meaning of attn_type_list",
        ),
    ],
)
def test_layers_that_no_rule_knows_are_refused(config, message):
    """Unknown layers may be anything, so "no attention" would be a guess."""
    with pytest.raises(ModelError, match=message):
        specify(config)


@pytest.mark.parametrize("model_type", ["mixtral", "ministral3", "phi3", "starcoder2"])
def test_types_of_layers_move_no_window_of_a_class_that_ignores_them(model_type):
    """Masks of these classes use `sliding_window` only; AutoConfig makes a Mistral a Ministral."""
    config = {"sliding_window": 3, "num_hidden_layers": 1, "layer_types": ["full_attention"]}
    spec = specify({"model_type": model_type, **config})
    assert spec.layers[0].window == 3
    said = f"layer_types is ['full_attention'], which the code of {model_type} ignores"
    assert said in spec.notes
    assert specify({"model_type": "mistral", **config}).layers[0].window is None


def test_a_decoder_that_is_told_so_looks_both_ways():
    """Embedding models are published so; the mask of a window in transformers then has two ends."""
    config = {"model_type": "qwen3", "num_hidden_layers": 2, "is_causal": False}
    assert [layer.causal for layer in specify(config).layers] == [False] * 2
    assert specify(config).layers[0].mask() is None
    types = ["sliding_attention", "full_attention"]
    spec = specify(config | {"model_type": "gemma2", "layer_types": types, "sliding_window": 8})
    assert [layer.window for layer in spec.layers] == [9, None]
    chunked = {"model_type": "llama4_text", "num_hidden_layers": 4, "is_causal": False}
    assert [layer.causal for layer in specify(chunked).layers] == [True, True, True, False]
    assert specify(config | {"is_causal": True}).layers[0].causal
    with refused(ModelError, "is_causal", "'no'"):
        specify(config | {"is_causal": "no"})


def test_numbers_and_padded_lists_of_layers_say_what_each_is():
    """The published lists of DeepSeek-V4 and Step 3.5 have more entries than layers."""
    config = {"model_type": "deepseek_v4", "num_hidden_layers": 4, "qk_rope_head_dim": 128}
    yarn = {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536}
    spec = specify(config | {"compress_ratios": [0, 4, 128, 4, 0], "rope_scaling": yarn})
    turns = [layer.encoding for layer in spec.layers]
    assert [turn.base for turn in turns] == [1e4, 1.6e5, 1.6e5, 1.6e5]
    assert {(turn.turned, turn.dim, turn.gain, turn.trailing) for turn in turns} == {
        (128, 512, 1.0, True)
    }
    assert [turn.method for turn in turns] == ["default", "yarn", "yarn", "yarn"]
    with refused(ModelError, "compress_ratios"):
        specify(config | {"compress_ratios": [0, 4, 128, 5]})
    types = ["full_attention", "sliding_attention"] * 2
    config = {"model_type": "step3p5", "num_hidden_layers": 3, "layer_types": types}
    config |= {"rope_theta": [5e6, 1e4, 5e6, 1e4], "partial_rotary_factors": [0.5, 1, 0.5, 1]}
    config |= {"sliding_window": 512, "yarn_only_types": ["full_attention"]}
    turns = [layer.encoding for layer in specify(config | {"rope_scaling": LLAMA_3}).layers]
    assert [(turn.base, turn.turned, turn.method) for turn in turns] == [
        (5e6, 64, "llama3"),
        (1e4, 128, "default"),
        (5e6, 64, "llama3"),
    ]
    with refused(ModelError, "yarn_only_types"):
        specify(config | {"yarn_only_types": ["sliding_attention"]})
    with refused(ModelError, "rope_theta", 1):
        specify(config | {"rope_theta": [5e6]})


def test_a_list_that_says_the_same_of_all_layers_says_nothing():
    """MiniMax M2's files list only ones; a mixed list would be another model."""
    config = {"model_type": "minimax_m2", "num_hidden_layers": 3}
    assert len(specify(config | {"attn_type_list": [1, 1, 1]}).layers) == 3
    with refused(ModelError, "attn_type_list"):
        specify(config | {"attn_type_list": [0, 1, 1]})


def test_of_a_whole_that_is_not_known_its_text_model_is_read():
    """Kimi K3 contains a Kimi-Linear."""
    lists = {"full_attn_layers": [3], "kda_layers": [1, 2]}
    text = {"model_type": "kimi_linear", "num_hidden_layers": 3, "linear_attn_config": lists}
    spec = specify({"model_type": "kimi_k3", "text_config": text})
    assert [layer.attends for layer in spec.text_stack.layers] == [False, False, True]
    assert spec.notes == ("model_type 'kimi_k3' is unknown, so only its text_config is read",)
    with pytest.raises(ModelError, match="the type is unknown, and no key describes RoPE"):
        specify({"model_type": "kimi_k3"})


def test_keys_that_say_what_holds_anyway_are_no_riddle():
    """GPT-J's `rotary` and Command R7B's `rotary_pct` are harmless; other values are rejected."""
    assert specify({"model_type": "gptj", "rotary": True}).layers
    assert specify({"model_type": "cohere2", "rotary_pct": 1.0}).layers
    with refused(ModelError, "rotary_pct"):
        specify({"model_type": "cohere2", "rotary_pct": 0.5})


def test_zamba_2_has_the_shared_layers_of_its_default():
    """Compare with the layers of transformers' default config."""
    layers = specify({"model_type": "zamba2"}).layers
    assert [layer.kind for layer in layers] == Zamba2Config().layers_block_type
