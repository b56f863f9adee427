"""Test the parser against 35 published configs with values computed by transformers.

tests/data/rope_configs.json has the values. Layers are compared with published facts.
"""

import math
from dataclasses import replace

import pytest
from published import KINDS, MODELS, published
from published_rotation import turning
from refusals import refused

from posenc import ALiBi, DeBERTa, T5Bias
from posenc.models.config import specify
from posenc.models.config.spec import (
    Buckets,
    Disentangled,
    PatchOrder,
    PatchRotary,
    Projected,
    Rotary,
    Slopes,
)
from posenc.models.files.errors import ModelError, Unread


@pytest.mark.parametrize("name", KINDS)
def test_published_models_have_the_layout_that_is_on_record(name):
    if KINDS[name] == "moonshine" or "layout" in MODELS[name]:
        assert turning(name).layout == MODELS[name].get("layout", "interleaved")
    else:
        assert turning(name).layout == "half"


def test_a_picture_is_turned_by_rows_and_columns():
    """The 35th published model, DINOv3, has base 100 on coordinates from −1 to 1."""
    config = {"model_type": "dinov3_vit", "hidden_size": 384, "num_attention_heads": 6}
    spec = specify(config | {"num_hidden_layers": 12, "rope_theta": 100.0})
    assert [layer.encoding for layer in spec.layers] == [PatchRotary(64, 100.0, scaled=True)] * 12
    turn = spec.encodings()[0]
    assert (turn.axes, turn.dim, turn.layout) == (2, 64, "half")
    assert turn.freqs[0, 0].item() == pytest.approx(2 * math.pi)


def test_an_unknown_model_is_read_but_its_layout_must_be_given():
    config = published("Mistral-7B-Instruct-v0.3") | {"model_type": "mystery"}
    spec = specify(config)
    assert "the layout is unknown" in spec.notes[0]
    with pytest.raises(ValueError, match="`layout` must be 'half'"):
        spec.encodings()
    assert spec.encodings(layout="half")[0].layout == "half"


def test_models_that_add_to_scores():
    bloom = specify({"model_type": "bloom", "n_head": 6, "n_layer": 3, "hidden_size": 48})
    assert [layer.encoding for layer in bloom.layers] == [Slopes(6)] * 3
    assert isinstance(bloom.encodings()[0], ALiBi)
    t5 = specify({"model_type": "t5", "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4})
    assert [x.encoding for x in t5.parts["encoder"].layers] == [Buckets(4, 32, 128, True)] * 2
    assert [x.encoding for x in t5.parts["decoder"].layers] == [Buckets(4, 32, 128, False)] * 3
    assert isinstance(t5.parts["encoder"].encodings()[0], T5Bias)
    deberta = {"model_type": "deberta-v2", "relative_attention": True, "position_buckets": 256}
    deberta |= {"pos_att_type": ["p2c", "c2p"], "max_position_embeddings": 512}
    deberta |= {"position_biased_input": False, "hidden_size": 64, "num_attention_heads": 4}
    layer = specify(deberta).layers[0].encoding
    assert isinstance(layer, Disentangled)
    assert (layer.buckets, layer.reach) == (256, 512)
    assert specify(deberta).embedding is None
    assert isinstance(layer.encoding(), DeBERTa)


@pytest.mark.parametrize(("buckets", "reach"), [(2, 128), (32, 16)])
def test_t5_needs_distances_beyond_those_with_a_bucket_of_their_own(buckets, reach):
    """Half of the buckets are exact; a decoder has 32 on one side, an encoder 16 on each."""
    keys = "relative_attention_num_buckets", "relative_attention_max_distance"
    specify({"model_type": "t5"} | dict(zip(keys, (32, 17), strict=True)))
    with pytest.raises(
        ModelError, match=r"must be greater than \d+, the number of distances with their"
    ):
        specify({"model_type": "t5"} | dict(zip(keys, (buckets, reach), strict=True)))


def test_falcon_has_two_forms():
    falcon = {"model_type": "falcon", "num_attention_heads": 4, "hidden_size": 64}
    assert isinstance(specify(falcon).layers[0].encoding, Rotary)
    assert specify(falcon | {"alibi": True}).layers[0].encoding == Slopes(4, 0.25, rounded=True)


def test_composite_configs_are_read_part_by_part():
    text = published("Gemma-3-12b-it (text)")
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"image_size": 896}}
    spec = specify(config)
    assert spec.text_stack == specify(text)
    assert spec.text_keys == ("text_config",)
    with refused(ModelError, "config.json", "text_config", "rope_theta"):
        specify({**config, "text_config": text | {"rope_theta": -1}})


def test_what_is_not_read_is_refused_by_name_with_the_reason():
    with pytest.raises(
        Unread, match="posenc does not support wavlm: its positions come from a convolution"
    ):
        specify({"model_type": "wavlm"})
    with pytest.raises(Unread, match="posenc does not support mystery: the type is unknown"):
        specify({"model_type": "mystery"})


MINE = {  # Published files in their original spelling, with source and meaning
    # GLM-5.2's config.json, and "head_dim" as in GLM-5's
    "GLM-5.2": (
        {
            **{"model_type": "glm_moe_dsa", "hidden_size": 6144, "num_hidden_layers": 78},
            **{"num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 192},
            **{"qk_rope_head_dim": 64, "qk_nope_head_dim": 192, "v_head_dim": 256},
            **{"rope_interleave": True, "indexer_rope_interleave": True},
            **{"rope_parameters": {"rope_theta": 8000000, "rope_type": "default"}},
            "max_position_embeddings": 1048576,
        },
        (78, 256, 64, 8e6, "interleaved"),
    ),
    # Kimi-K2's config.json; K2.5 has the same as its text_config. vLLM and transformers read it as
    # DeepSeek-V3
    "Kimi-K2": (
        {
            **{"model_type": "kimi_k2", "hidden_size": 7168, "num_hidden_layers": 61},
            **{"num_attention_heads": 64, "num_key_value_heads": 64, "qk_rope_head_dim": 64},
            **{"qk_nope_head_dim": 128, "v_head_dim": 128, "rope_theta": 50000.0},
            **{"max_position_embeddings": 131072},
            "rope_scaling": {
                **{"type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096},
                **{"beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
            },
        },
        (61, 192, 64, 5e4, "interleaved"),
    ),
    # MiMo-V2-Flash's config.json
    "MiMo-V2-Flash": (
        {
            **{"model_type": "mimo_v2_flash", "num_hidden_layers": 48, "hidden_size": 4096},
            **{"num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192},
            **{"v_head_dim": 128, "swa_num_attention_heads": 64, "swa_num_key_value_heads": 8},
            **{"swa_head_dim": 192, "swa_v_head_dim": 128, "sliding_window": 128},
            **{"sliding_window_size": 128, "max_position_embeddings": 262144},
            **{"rope_theta": 5000000, "swa_rope_theta": 10000, "partial_rotary_factor": 0.334},
            **{"add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False},
            "hybrid_layer_pattern": [0, *([1] * 4 + [0]), *([1] * 5 + [0]) * 7],
        },
        (48, 192, 64, 5e6, "half"),
    ),
    # nomic-embed-text-v1.5's config.json, without what transformers adds to it
    "nomic-embed-text": (
        {
            **{"model_type": "nomic_bert", "n_embd": 768, "n_layer": 12, "n_head": 12},
            **{"n_positions": 8192, "max_trained_positions": 2048, "rotary_emb_base": 1000},
            **{"rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False},
            **{"rotary_emb_scale_base": None, "rotary_scaling_factor": None},
        },
        (12, 64, 64, 1e3, "half"),
    ),
    # MiniMax-M3's text config as published; the key of its vision config is our own:
    # an unsupported vision config must not prevent reading the text config
    "MiniMax-M3-VL": (
        {
            "model_type": "minimax_m3_vl",
            "text_config": {
                **{"hidden_size": 6144, "num_hidden_layers": 60, "num_attention_heads": 64},
                **{"num_key_value_heads": 4, "head_dim": 128, "rotary_dim": 64},
                **{"partial_rotary_factor": 0.5, "rope_theta": 5000000},
                "max_position_embeddings": 1048576,
            },
            "vision_config": {"model_type": "clip_vision_model", "position_embedding_type": "rope"},
        },
        (60, 128, 64, 5e6, "half"),
    ),
    # Qwen2.5-VL-7B's published config.json, with the text's keys beside vision_config
    "Qwen2.5-VL": (
        {
            **{"model_type": "qwen2_5_vl", "hidden_size": 3584, "num_attention_heads": 28},
            **{"num_hidden_layers": 28, "num_key_value_heads": 4, "rope_theta": 1000000.0},
            **{"max_position_embeddings": 128000, "max_window_layers": 28},
            **{"sliding_window": 32768, "use_sliding_window": False},
            "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
            "vision_config": {"model_type": "qwen2_5_vl", "depth": 32, "hidden_size": 1280},
        },
        (28, 128, 128, 1e6, "half"),
    ),
}


@pytest.mark.parametrize("name", MINE)
def test_published_files_in_their_makers_spelling(name):
    config, expected = MINE[name]
    spec = specify(config).text_stack
    turn = spec.layers[0].encoding
    assert (len(spec.layers), turn.dim, turn.turned, turn.base, turn.layout) == expected


def test_mimo_sees_128_tokens_back_and_turns_otherwise_there():
    """Compare with MiMo's own code, SGLang's code, and the class in transformers."""
    layers = specify(MINE["MiMo-V2-Flash"][0]).layers
    assert [x.window for x in layers[:7]] == [None, 129, 129, 129, 129, None, 129]
    assert {x.encoding.base for x in layers if x.window} == {1e4}
    assert layers == specify({"model_type": "mimo_v2_flash"}).layers
    with refused(Unread, "rope_theta", "5000000.0"):
        specify(MINE["MiMo-V2-Flash"][0] | {"rope_theta": 1e4})


def test_keys_of_a_class_count_before_those_of_older_files():
    """The file of nomic-embed-text-v1.5 has both kinds of keys since transformers supports it."""
    older = MINE["nomic-embed-text"][0]
    added = {"max_position_embeddings": 2048, "hidden_size": 768, "rope_parameters": None}
    added["rope_parameters"] = {"rope_theta": 1000.0, "rope_type": "default"}
    spec = specify(older | added)
    assert (spec.context, spec.layers) == (2048, specify(older).layers)
    assert spec.notes == ("n_positions is 8192, but max_position_embeddings is used",)
    assert specify({"model_type": "nomic_bert"}).context == 2048
    with refused(ModelError, "rope_theta"):
        specify(older | added | {"rotary_emb_base": 500})


def test_kimi_in_kimi_k25():
    text = MINE["Kimi-K2"][0]
    whole = {"model_type": "kimi_k25", "text_config": text, "vision_config": {"hidden_size": 1152}}
    assert specify(whole).text_stack == specify(text)
    assert specify(text) == replace(specify(text | {"model_type": "deepseek_v3"}), model="kimi_k2")


def test_comfyui_calls_dinov3_so():
    """ComfyUI's image_encoders/dino3_large.json uses this name."""
    config = {"model_type": "dinov3", "hidden_size": 1024, "num_attention_heads": 16}
    config |= {"num_hidden_layers": 24, "rope_theta": 100.0, "pos_embed_rescale": 2.0}
    assert [layer.encoding for layer in specify(config).layers] == [
        PatchRotary(64, 100.0, scaled=True)
    ] * 24


def test_a_part_that_is_not_read_is_in_the_notes():
    text = {"model_type": "gemma3n_text", "num_hidden_layers": 5}
    vision = {"model_type": "gemma3n_vision"}
    spec = specify({"model_type": "gemma3n", "text_config": text, "vision_config": vision})
    assert any(note.startswith("config.json:vision_config.") for note in spec.notes)
    assert [*spec.parts] == ["text_config"]


def test_the_vision_part_of_a_published_file_is_read():
    """Qwen2.5-VL-7B has 16 heads of 80 channels, and windows of 112 pixels, 8 patches of 14."""
    spec = specify(MINE["Qwen2.5-VL"][0])
    near, *_, far = spec.parts["vision_config"].layers
    assert near.encoding == PatchRotary(80, 1e4, order=PatchOrder("windows", 2, 8))
    assert (near.window, far.window, far.encoding) == (8, None, near.encoding)
    assert spec.notes == ()


def test_nothing_is_said_of_what_was_not_read():
    with refused(Unread, "text_config", "vision_config"):
        specify({"model_type": "qwen2_5_vl"})


def test_relative_keys_of_esm_are_refused_as_transformers_5_forgot_them():
    """transformers 4 used Shaw's encoding for them; 5.23 runs the model without any positions."""
    config = {"model_type": "esm", "vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32}
    for kind in ("relative_key", "relative_key_query"):
        with refused(Unread, 4):
            specify(config | {"position_embedding_type": kind})
    assert isinstance(
        specify(config | {"position_embedding_type": "rotary"}).layers[0].encoding, Rotary
    )


def test_xlnet_and_conformers():
    """Keys that would change their distances are rejected."""
    assert {x.encoding for x in specify({"model_type": "xlnet"}).layers} == {
        Projected(64, 16, 1024)
    }
    with refused(Unread, "clamp_len"):
        specify({"model_type": "xlnet", "clamp_len": 256})
    conformer = {"model_type": "wav2vec2-conformer"}
    assert specify(conformer).layers[0].encoding == Projected(64, 12, 768, halves=False)
    assert specify(conformer | {"position_embeddings_type": None}).layers[0].encoding is None
    with pytest.raises(Unread, match="it rotates the input of the query"):
        specify(conformer | {"position_embeddings_type": "rotary"})


def test_mpt_with_other_slopes_says_whose_are_counted():
    """transformers' class reads `alibi_bias_max`, but always uses 8."""
    mpt = {"model_type": "mpt", "n_heads": 4, "d_model": 64}
    spec = specify(mpt | {"attn_config": {"alibi": True, "alibi_bias_max": 16}})
    assert spec.layers[0].encoding == Slopes(4)
    assert "alibi_bias_max is 16, but slopes of 8 are used" in spec.notes[0]
    assert specify(mpt | {"attn_config": {"alibi_bias_max": 8}}).notes == ()
    with refused(Unread, "attn_config"):
        specify(mpt | {"attn_config": {"alibi": False}})
