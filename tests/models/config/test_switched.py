"""Test changed values of keys that concern positions against transformers' models: see switched.py.

This file has values that were once misread, and one of each key; `make thorough` runs all.
"""

import sys
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

pytest.importorskip("transformers")

from thorough import THOROUGH

sys.path.insert(0, str(Path(__file__).parent))
import understood
from switched import Switched, recorded, switched, variants
from understood import in_second_python, watched

from posenc.models.config import specify
from posenc.models.files.errors import ModelError

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _quiet():
    """Ignore warnings of transformers."""
    watched.quiet()


def same(model_type: str, **values: Any) -> None:
    """Compare the specification of a config with the model that is built from it."""
    one = switched(model_type, values)
    assert (one.outcome, one.why) == ("equal", "")


@pytest.mark.parametrize("which", [[1, 4], [0]])
def test_convolutions_of_lfm2_neither_attend_nor_turn(which: list[int]):
    same("lfm2", num_hidden_layers=6, full_attn_idxs=which)
    spec = specify({"model_type": "lfm2", "num_hidden_layers": 6, "full_attn_idxs": which})
    assert [n for n, layer in enumerate(spec.layers) if layer.attends] == which
    assert [n for n, layer in enumerate(spec.layers) if layer.encoding] == which


@pytest.mark.parametrize("model_type", ["gpt_neox", "gpt_neox_japanese"])
@pytest.mark.parametrize("values", [{"rope_theta": 5e4}, {"partial_rotary_factor": 0.5}], ids=str)
def test_usual_names_of_keys_that_gpt_neox_calls_otherwise_are_ignored(
    model_type: str, values: dict[str, Any]
):
    """The class reads only `rotary_emb_base` and `rotary_pct`."""
    same(model_type, num_hidden_layers=2, **values)
    same(model_type, num_hidden_layers=2, rotary_emb_base=5e4, rotary_pct=0.5, **values)
    (note,) = specify({"model_type": model_type, **values}).notes
    assert "ignores; it reads rotary_" in note


def test_a_window_of_minimax_is_that_of_its_full_layers():
    same("minimax", num_hidden_layers=4, sliding_window=6)


@pytest.mark.parametrize("model_type", ["modernbert", "modernbert-decoder"])
def test_a_window_of_modernbert_may_be_given_as_its_half(model_type: str):
    same(model_type, num_hidden_layers=4, sliding_window=5)
    same(model_type, num_hidden_layers=4, local_attention=10)


def test_a_share_alone_says_how_many_channels_of_minimax_m3_turn():
    """The class states `rotary_dim` too, but does not read it."""
    same("minimax_m3_vl_text", num_hidden_layers=2, head_dim=64)
    rope = {"rope_theta": 5e6, "partial_rotary_factor": 0.25, "rope_type": "default"}
    same("minimax_m3_vl_text", num_hidden_layers=2, rope_parameters=rope)


def test_a_trained_length_at_the_top_paces_the_temperature_of_ministral3():
    """transformers moves the length into the rope settings, which the temperature uses."""
    same("ministral3", num_hidden_layers=2, original_max_position_embeddings=512)
    spec = specify({"model_type": "ministral3", "original_max_position_embeddings": 512})
    assert spec.layers[0].temperature.every == 512


def test_hy_v4_has_as_many_heads_of_keys_as_of_queries():
    same("hy_v4", num_attention_heads=64)
    assert specify({"model_type": "hy_v4", "num_attention_heads": 64}).groups == 64


@pytest.mark.parametrize("model_type", ["olmoe", "qwen3_omni_moe_text"])
def test_a_window_that_only_other_kernels_are_told_is_none(model_type: str):
    """The masks of these classes are causal even if `sliding_window` is stated."""
    same(model_type, num_hidden_layers=2, sliding_window=5)


@pytest.mark.parametrize("model_type", ["mistral", "gemma2", "phi3", "minimax", "ultrabert"])
def test_a_flag_of_qwen2_takes_the_window_of_no_other_model(model_type: str):
    """In this test 26 classes have windows and do not read `use_sliding_window`."""
    same(model_type, num_hidden_layers=4, sliding_window=5, use_sliding_window=False)
    notes = specify({"model_type": model_type, "use_sliding_window": False}).notes
    said = f"use_sliding_window is False, which the code of {model_type} ignores"
    without = model_type in ("phi3", "minimax")  # classes without a window by default
    assert (said in notes) == (not without)


def test_layers_below_the_first_with_a_window_are_those_of_classes_that_count_them():
    """Mistral ignores the key, Qwen2 requires a flag, and dots.llm1 reads it without a flag."""
    values = {"num_hidden_layers": 4, "sliding_window": 5, "max_window_layers": 2}
    same("mistral", **values)
    same("qwen2", use_sliding_window=True, **values)
    for model_type in ("dots1", "qwen3_omni_moe_talker_code_predictor"):
        same(model_type, **values)
        spec = specify({"model_type": model_type, **values})
        assert [layer.window for layer in spec.layers] == [None, None, 5, 5]


def test_layers_of_smollm3_without_encoding_slide():
    same("smollm3", num_hidden_layers=8, use_sliding_window=True, sliding_window=6)
    same("smollm3", num_hidden_layers=8, sliding_window=6)
    types = ["sliding_attention", "full_attention"]
    same("smollm3", num_hidden_layers=2, sliding_window=6, layer_types=types)
    config = {"model_type": "smollm3", "num_hidden_layers": 4, "sliding_window": 6}
    spec = specify({**config, "use_sliding_window": True})
    assert [layer.window for layer in spec.layers] == [None, None, None, 6]


def test_a_base_of_olmo3_is_that_of_its_full_layers():
    same("olmo3", num_hidden_layers=4, rope_theta=5e4)


def test_types_of_layers_of_lfm2_stand_above_its_list():
    types = ["conv", "full_attention", "conv"]
    same("lfm2", num_hidden_layers=3, layer_types=types, full_attn_idxs=[0])


@pytest.mark.parametrize(("period", "offset"), [(8, 2), (4, 1), (4, 3), (1, 0), (13, 12)])
def test_layers_of_jamba_that_attend_are_those_at_the_offset(period: int, offset: int):
    same("jamba", num_hidden_layers=14, attn_layer_period=period, attn_layer_offset=offset)


def test_an_offset_beyond_the_period_is_refused():
    """transformers rejects it too; the class uses 4."""
    with refused(ModelError, "attn_layer_offset", "attn_layer_period", 4):
        specify({"model_type": "jamba", "attn_layer_period": 4})


def test_letters_numbers_and_old_words_of_layers_are_read_as_their_classes_do():
    same("nemotron_h", num_hidden_layers=6, hybrid_override_pattern="M-M*-E")
    same("nemotron_h", num_hidden_layers=9)
    lists = {"full_attn_layers": [3], "kda_layers": [1, 2, 4]}
    same("kimi_linear", num_hidden_layers=4, linear_attn_config=lists)
    same("kimi_linear", num_hidden_layers=9, linear_attn_config={"full_attn_layers": [3]})
    types = ["mamba", "attention"]
    same("granitemoehybrid", num_hidden_layers=2, layer_types=types, position_embedding_type="rope")
    same("qwen3_next", num_hidden_layers=2, layer_types=types)


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "llama4_text", "gpt2", "gptj"])
def test_what_is_told_not_to_be_causal_looks_both_ways(model_type: str):
    same(model_type, is_causal=False)


def test_layers_that_are_listed_or_go_round_attend():
    """Test Bamba, Zamba 2 and RecurrentGemma."""
    same("bamba", num_hidden_layers=4, attn_layer_indices=[1, 3])
    same("bamba", num_hidden_layers=4)
    types = ["mamba", "mamba", "hybrid"]
    same("zamba2", num_hidden_layers=3, layers_block_type=types)
    same("zamba2", use_mem_rope=True)
    same("recurrent_gemma", num_hidden_layers=5, block_types=["recurrent", "attention"])


@pytest.mark.parametrize("model_type", ["granite_swa", "granitemoe_swa"])
def test_each_layer_of_granite_swa_may_have_a_base_or_none(model_type: str):
    same(model_type, num_hidden_layers=3, layer_rope_theta=[0, 1e4, 5e5])
    config = {"model_type": model_type, "num_hidden_layers": 3, "layer_rope_theta": [0, 1e4, 5e5]}
    layers = specify(config).layers
    assert [layer.encoding and layer.encoding.base for layer in layers] == [None, 1e4, 5e5]
    for wrong in ([1e4], [0, 1e4, 0.5], "1e4", [0, 1e4, True]):
        message = "layer_rope_theta: must be 3 bases"
        with pytest.raises(ModelError, match=message):
            specify(config | {"layer_rope_theta": wrong})


@pytest.mark.parametrize(
    "values",
    [
        {"use_bidirectional_attention": "all"},
        {"partial_rotary_factor": 0.5},
        {"global_head_dim": 128},
        {"layer_types": ["full_attention", *["sliding_attention"] * 6]},
    ],
    ids=str,
)
def test_heads_of_full_layers_of_gemma_4_are_wider(values: dict[str, Any]):
    same("gemma4_text", num_hidden_layers=7, **values)


def test_saved_heads_of_gemma_4_are_read_layer_by_layer():
    config = {"model_type": "gemma4_text", "num_hidden_layers": 6}
    wide = {"5": {"head_dim": 128}}
    layers = specify(config | {"per_layer_config": wide}).layers
    assert [layer.encoding.dim for layer in layers] == [256] * 5 + [128]
    with refused(ModelError, "per_layer_config", "gemma4_text"):
        specify(config | {"per_layer_config": wide | {"4": {"head_dim": 64}}})


def test_a_share_of_mistral_4_is_that_of_its_whole_head():
    same("mistral4", num_hidden_layers=2, qk_rope_head_dim=32)
    same("mistral4", num_hidden_layers=2)


def test_embedding_gemma_sees_a_window_to_both_sides():
    same("gemma3_text", num_hidden_layers=6, sliding_window=512, use_bidirectional_attention=True)
    config = {"model_type": "gemma3_text", "sliding_window": 512}
    spec = specify({**config, "use_bidirectional_attention": True})
    assert spec.layers[0].window == 257


@pytest.mark.parametrize("model_type", ["internvl_vision", "qianfan_ocr_vision"])
def test_a_picture_without_absolute_positions_has_no_table(model_type: str):
    same(model_type, num_hidden_layers=2, use_absolute_position_embeddings=False)
    spec = specify({"model_type": model_type, "use_absolute_position_embeddings": False})
    assert spec.embedding is None


def test_trocr_without_learned_positions_has_waves():
    same("trocr", decoder_layers=2, use_learned_position_embeddings=False)
    same("trocr", decoder_layers=2, use_learned_position_embeddings=False, pad_token_id=5)


@pytest.mark.parametrize("where", ["top", "rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("model_type", ["llama", "qwen2", "mistral"])
def test_a_share_of_channels_is_believed_only_of_models_that_heed_it(model_type: str, where: str):
    """In this test 85 classes ignore the share."""
    share = {"partial_rotary_factor": 0.5}
    values = share if where == "top" else {where: {"rope_type": "default", **share}}
    same(model_type, num_hidden_layers=2, **values)
    notes = specify({"model_type": model_type, **values}).notes
    assert any("partial_rotary_factor is 0.5, which the code of" in note for note in notes)
    same("stablelm", num_hidden_layers=2, **values)


def test_a_share_that_only_a_scaling_heeds_is_refused():
    """transformers scales half of the channels of a head that is fully rotated."""
    rope = {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}
    with refused(ModelError, "partial_rotary_factor", "'linear'"):
        specify({"model_type": "llama", "rope_parameters": rope})


@pytest.mark.parametrize("model_type", ["gptj", "codegen", "roformer"])
@pytest.mark.parametrize(
    "values",
    [{"rope_theta": 5e5}, {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}],
    ids=["base", "scaling"],
)
def test_a_fixed_base_is_not_changed_by_a_key(model_type: str, values: dict[str, Any]):
    layers = "num_hidden_layers" if model_type == "roformer" else "n_layer"
    same(model_type, **{layers: 2}, **values)
    (turn,) = specify({"model_type": model_type, **values}).rotary
    assert (turn.base, turn.factor) == (10_000.0, 1.0)


@pytest.mark.parametrize("model_type", ["qwen2_vl_text", "qwen3_vl_text"])
@pytest.mark.parametrize("interleaved", [True, False])
def test_how_axes_share_pairs_is_the_models_own(model_type: str, interleaved: bool):
    """No model of transformers reads `mrope_interleaved`."""
    rope = {"rope_theta": 1e6, "mrope_interleaved": interleaved}
    same(model_type, num_hidden_layers=2, rope_parameters=rope)
    (turn,) = specify({"model_type": model_type, "rope_parameters": rope}).rotary
    assert turn.interleaved == (model_type == "qwen3_vl_text")


def test_a_key_that_other_classes_heed_changes_nothing_and_is_said():
    """Llama has no windows and ignores `rotary_dim`, which GPT-J reads."""
    same("llama", num_hidden_layers=2, sliding_window=5)
    same("llama", num_hidden_layers=2, rotary_dim=16)
    spec = specify({"model_type": "llama", "sliding_window": 5})
    assert "sliding_window is 5, which the code of llama ignores" in spec.notes
    assert spec.layers[0].window is None


def test_a_base_beside_rope_settings_that_a_class_states_is_ignored():
    """The class states complete rope settings with their own base."""
    same("cwm", num_hidden_layers=4, rope_theta=5e4)


@pytest.mark.parametrize("values", [{"rope_theta": 5e4}, {"partial_rotary_factor": 0.5}], ids=str)
def test_a_table_of_angles_of_another_model_is_heeded_as_there(values: dict[str, Any]):
    """InternLM 3 uses Llama's rotary module, which reads a base and ignores a share."""
    same("internlm3", num_hidden_layers=2, **values)


def test_each_key_is_read_or_refused():
    """Each key is tested in one model; a run that is not thorough tests every second key."""
    options = ["--sample"] if THOROUGH else ["--sample", "--half"]
    done = [Switched(**line) for line in in_second_python("switched.py", *options)]
    assert len(done) > (70 if THOROUGH else 35)
    wrong = [one for one in done if one.outcome not in ("equal", "refused", "impossible")]
    assert [f"{one.model_type} {one.values}: {one.why}" for one in wrong] == []


@pytest.mark.skipif(not THOROUGH, reason="half an hour: `make thorough` runs it")
def test_every_key_of_every_model_is_read_or_refused():
    every = in_second_python("switched.py")
    assert [one for one in every if one["outcome"] == "wrong"] == []


def test_a_type_of_layers_that_a_class_renames_attends():
    """GLM-5-Next's class converts every full layer to an indexed one."""
    types = ["linear_attention", "full_attention"]
    spec = specify({"model_type": "glm5_next_text", "num_hidden_layers": 2, "layer_types": types})
    assert [layer.kind for layer in spec.layers] == ["linear_attention", "indexed_attention"]
    assert [layer.attends for layer in spec.layers] == [False, True]


def test_a_share_of_pairs_of_several_axes_is_refused():
    """transformers keeps the sections of the axes, and sets part of their frequencies to 0."""
    rope = {"rope_type": "proportional", "partial_rotary_factor": 0.5}
    with refused(ModelError, "rope_type", 3, "mrope_section"):
        specify({"model_type": "qwen2_vl_text", "rope_parameters": rope})


def test_as_many_heads_as_tokens_are_not_taken_for_them():
    """Models run on four tokens; ZAYA has four heads with separate rotations."""
    same("zaya", num_hidden_layers=2, num_attention_heads=4)


def test_the_record_of_the_sweep_is_whole_and_nothing_in_it_is_wrong():
    """`switched.py --record` writes every present key of every model."""
    record = recorded()
    keys = {name: {[*values][-1] for values in variants(name)} for name in understood.models()}
    assert {name: set(outcomes) for name, outcomes in record.items()} == {
        name: of for name, of in keys.items() if of
    }
    outcomes = [counts for keys in record.values() for counts in keys.values()]
    assert {outcome for counts in outcomes for outcome in counts} <= {
        "equal",
        "refused",
        "impossible",
    }
    assert sum(counts.get("equal", 0) for counts in outcomes) > 4000
