"""Against the 35 published configurations and the values that transformers computes for them, kept
in tests/data/rope_configs.json; and against what is known of the layers from a model's makers."""

import json
import math
from dataclasses import replace

import pytest
import torch
from published import KINDS, LAYERS, MODELS, published

from posenc import ALiBi, DeBERTa, Learned, NoPE, RoPE, Sinusoidal, Sum, T5Bias
from posenc.encodings.temperature import Temperature
from posenc.models.config import read, specify
from posenc.models.config.spec import (
    Buckets,
    Disentangled,
    Pictured,
    Projected,
    Rotary,
    Sharpened,
    Slopes,
    Table,
    Waves,
)
from posenc.models.files.errors import ModelError, Unread


def turning(name):
    """The rotation of its layers that see the whole text."""
    layers = specify(published(name)).main.layers
    turns = [layer.encoding for layer in layers if isinstance(layer.encoding, Rotary)]
    wide = [x.encoding for x in layers if x.window is None and isinstance(x.encoding, Rotary)]
    return (wide or turns)[0]


@pytest.mark.parametrize("name", KINDS)
def test_published_models_turn_as_transformers_computes(name):
    model, turn = MODELS[name], turning(name)
    refs = model["ref"]
    trained = model.get("original_max_position_embeddings", 10)
    cases = [(refs, 10)]
    if "short" in refs:
        cases = [(refs["short"], trained), (refs["long"], trained + 1)]
    for ref, length in cases:
        theta = turn.frequencies(length)
        theta = theta.sum(0) if theta.ndim == 2 else theta
        assert len(theta) == ref["n"] == turn.turned // 2
        made = [theta[0].item(), theta[len(theta) // 2].item(), theta[-1].item()]
        assert made == pytest.approx([ref["first"], ref["mid"], ref["last"]], rel=1e-6)
        if "sum" in ref:
            assert theta.sum().item() == pytest.approx(ref["sum"], rel=1e-6)
        assert turn.gain == pytest.approx(ref["attention_factor"], rel=1e-9)


@pytest.mark.parametrize("name", KINDS)
def test_published_models_have_the_layout_that_is_on_record(name):
    if KINDS[name] == "moonshine" or "layout" in MODELS[name]:
        assert turning(name).layout == MODELS[name].get("layout", "interleaved")
    else:
        assert turning(name).layout == "half"


@pytest.mark.parametrize("name", KINDS)
def test_published_models_give_ready_encodings(name):
    made = specify(published(name)).main.encodings(length=10)
    assert len(made) in (LAYERS, LAYERS // 4)  # Qwen3.5 attends in every fourth layer
    for encoding in made:
        parts = list(encoding) if isinstance(encoding, Sum) else [encoding]
        assert isinstance(parts[0], (RoPE, NoPE))
    turn = (
        next(e for e in made if isinstance(e, RoPE))
        if any(isinstance(e, RoPE) for e in made)
        else next(iter(next(e for e in made if isinstance(e, Sum))))
    )
    width = turn.dim
    q, k = torch.randn(2, 1, 2, 5, width)
    pos = torch.arange(5)
    pos = pos if turn.axes == 1 else pos[:, None].expand(5, turn.axes)
    assert turn(q, k, pos)[0].shape == q.shape


@pytest.mark.parametrize("name", ["Llama-3.1-8B-Instruct", "Devstral-2-123B-Instruct"])
def test_four_spellings_make_one_specification(name):
    """F19: `type` or `rope_type`, `rope_scaling` or `rope_parameters`."""
    old = published(name)
    scaling, theta = old["rope_scaling"], old["rope_theta"]
    typed = {("type" if k == "rope_type" else k): v for k, v in scaling.items()}
    bare = {k: v for k, v in old.items() if k not in ("rope_scaling", "rope_theta")}
    spellings = [
        old,
        old | {"rope_scaling": typed},
        bare | {"rope_parameters": {**scaling, "rope_theta": theta}},
        bare | {"rope_parameters": {**typed, "rope_theta": theta}},
        bare | {"rope_theta": int(theta), "rope_parameters": scaling},
    ]
    specs = [specify(config) for config in spellings]
    assert all(spec == specs[0] for spec in specs)
    assert specs[0].rotary[0].method == scaling["rope_type"]


CONTEXTS = {  # F17: multiplied twice elsewhere
    "Qwen2.5 (32B or 72B) + yarn recipe": (131072, 32768),
    "DeepSeek-V3 / R1": (163840, 4096),
    "gpt-oss-20b/120b": (131072, 4096),
    "Llama-3.1-8B-Instruct": (131072, 8192),
    "Phi-3.5-mini-instruct": (131072, 4096),
    "Gemma-3-12b-it (text)": (131072, 16384),
    "Qwen2.5-7B-Instruct": (32768, 32768),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_the_context_is_counted_once(name):
    spec = specify(published(name)).main
    assert (spec.context, spec.trained) == CONTEXTS[name]


def test_deepseek_sharpens_the_softmax_and_leaves_cos_and_sin():
    g = 0.1 * math.log(40) + 1
    turn = turning("DeepSeek-V3 / R1")
    assert (turn.gain, turn.logit_gain) == (1.0, pytest.approx(g * g))
    assert (turn.dim, turn.turned, turn.trailing) == (192, 64, True)
    assert turn.encoding().scale(192) == pytest.approx(g * g / math.sqrt(192))


def test_gemma_stretches_its_global_layers_only():
    spec = specify(published("Gemma-3-12b-it (text)"))
    methods = [(layer.window, layer.encoding.base, layer.encoding.method) for layer in spec.layers]
    local, wide = (1024, 1e4, "default"), (None, 1e6, "linear")
    assert methods == [local] * 5 + [wide] + [local] * 2


def test_olmo_3_stretches_its_global_layers_only():
    spec = specify(published("Olmo-3.1-32B-Instruct"))
    methods = [(layer.window, layer.encoding.method) for layer in spec.layers]
    assert methods == ([(4096, "default")] * 3 + [(None, "yarn")]) * 2


def test_nested_settings_by_type_of_layer():
    """transformers 5's spelling; null is a type of layer without encoding."""
    config = published("Gemma-3-1b-it")
    for key in ("rope_theta", "rope_local_base_freq"):
        config.pop(key)
    config["layer_types"] = ["sliding_attention"] * 7 + ["full_attention"]
    config["rope_parameters"] = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
        "full_attention": {
            "rope_type": "yarn",
            "factor": 8.0,
            "truncate": False,
            "rope_theta": 2e6,
        },
    }
    layers = specify(config).layers
    assert layers[0].encoding.base == 5e3
    assert (layers[7].encoding.base, layers[7].encoding.rounded) == (2e6, False)
    config["rope_parameters"]["full_attention"] = None
    assert specify(config).layers[7].encoding is None


def bare(config):
    return [layer.encoding is None for layer in specify(config).main.layers]


def test_layers_without_encoding():
    """A 1 in `no_rope_layers` of Llama 4 and SmolLM3 says that the layer does turn."""
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


def test_a_picture_is_turned_by_rows_and_columns():
    """The 35th published model, DINOv3: base 100, on coordinates from −1 to 1."""
    config = {"model_type": "dinov3_vit", "hidden_size": 384, "num_attention_heads": 6}
    spec = specify(config | {"num_hidden_layers": 12, "rope_theta": 100.0})
    assert [layer.encoding for layer in spec.layers] == [Pictured(64, 100.0)] * 12
    turn = spec.encodings()[0]
    assert (turn.axes, turn.dim, turn.layout) == (2, 64, "half")
    assert turn.freqs[0, 0].item() == pytest.approx(2 * math.pi)


def test_exaone_without_windows_turns_everywhere():
    assert not any(bare(published("EXAONE-4.0-32B") | {"sliding_window": None}))


def test_queries_sharpened_far_into_a_text():
    config = published("Llama-4-Scout-17B-16E (text)")
    config |= {"attn_temperature_tuning": True, "floor_scale": 8192, "attn_scale": 0.1}
    layers = specify(config).layers
    assert [layer.temperature for layer in layers] == ([None] * 3 + [Sharpened(8192, 0.1, 1)]) * 2
    made = specify(config).encodings()[3]
    assert isinstance(made, Sum)
    assert [type(part) for part in made] == [NoPE, Temperature]
    config = published("Ministral-3 (class default)")
    config["rope_scaling"] = {**config["rope_scaling"], "llama_4_scaling_beta": 0.1}
    assert {layer.temperature for layer in specify(config).layers} == {Sharpened(16384, 0.1, 0)}


def test_sections_of_pictures_and_video():
    contiguous, woven = turning("Qwen2.5-VL-7B-Instruct"), turning("Qwen3-VL-2B (text)")
    assert (contiguous.sections, contiguous.woven) == ((16, 24, 24), False)
    assert (woven.sections, woven.woven) == ((24, 20, 20), True)
    assert contiguous.frequencies().shape == (3, 64)
    assert contiguous.encoding().axes == 3


def test_a_length_must_be_given_where_it_matters():
    spec = specify(published("Phi-3.5-mini-instruct"))
    with pytest.raises(
        ValueError, match=r"'longrope' depend on how long the text is: pass `length`"
    ):
        spec.encodings()
    dynamic = {"rope_scaling": {"type": "dynamic", "factor": 2.0}}
    spec = specify(published("SmolLM2-135M-Instruct") | dynamic)
    with pytest.raises(ValueError, match="pass `length`"):
        spec.encodings()
    assert spec.context == 16384


def test_an_unknown_model_is_read_but_its_layout_must_be_given():
    config = published("Mistral-7B-Instruct-v0.3") | {"model_type": "mystery"}
    spec = specify(config)
    assert "the layout is not known" in spec.notes[0]
    with pytest.raises(ValueError, match="does not say where the channels of a pair sit: pass"):
        spec.encodings()
    assert spec.encodings(layout="half")[0].layout == "half"


def test_models_that_add_rows():
    gpt2 = specify({"model_type": "gpt2", "n_positions": 64, "n_embd": 32, "n_head": 4})
    assert gpt2.embedding == Table(64, 32)
    roberta = {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}
    assert specify(roberta).embedding == Table(512, 768, offset=2)
    opt = {"model_type": "opt", "max_position_embeddings": 2048, "hidden_size": 64}
    assert specify(opt | {"num_attention_heads": 4}).embedding == Table(2048, 64, offset=2)
    assert isinstance(gpt2.embedding.encoding(), Learned)
    whisper = specify({"model_type": "whisper"})
    waves = whisper.parts["encoder"].embedding
    assert isinstance(waves, Waves)
    assert (waves.halves, waves.closed, waves.rows) == (True, True, 1500)
    assert isinstance(waves.encoding(), Sinusoidal)
    assert whisper.parts["decoder"].embedding.rows == 448
    assert whisper.main is whisper.parts["decoder"]


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


def test_falcon_has_two_forms():
    falcon = {"model_type": "falcon", "num_attention_heads": 4, "hidden_size": 64}
    assert isinstance(specify(falcon).layers[0].encoding, Rotary)
    assert specify(falcon | {"alibi": True}).layers[0].encoding == Slopes(4, 0.25, rounded=True)


def test_composite_configs_are_read_part_by_part():
    text = published("Gemma-3-12b-it (text)")
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"image_size": 896}}
    spec = specify(config)
    assert spec.main == specify(text)
    assert spec.main_place == ("text_config",)
    with pytest.raises(
        ModelError, match=r"^config\.json:text_config\.rope_theta: must be a number"
    ):
        specify({**config, "text_config": text | {"rope_theta": -1}})


def test_what_is_not_read_is_refused_by_name_with_the_reason():
    with pytest.raises(
        Unread, match="posenc does not read wav2vec2: a convolution over the signal"
    ):
        specify({"model_type": "wav2vec2"})
    with pytest.raises(Unread, match="posenc does not read mystery: it is not known"):
        specify({"model_type": "mystery"})


def test_a_file_or_a_folder_is_read(tmp_path):
    config = published("Llama-3.1-8B-Instruct")
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read(tmp_path) == read(tmp_path / "config.json") == specify(config)


MINE = {  # files in their makers' spelling: where the values come from, and what they mean
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
    # MiniMax-M3's text config as published; the key of its vision config is of our making:
    # what is not read of a vision part must not keep the text from being read
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
    # Qwen2.5-VL-7B's config.json as it was published: the text's keys lie beside vision_config
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
    spec = specify(config).main
    turn = spec.layers[0].encoding
    assert (len(spec.layers), turn.dim, turn.turned, turn.base, turn.layout) == expected


def test_mimo_sees_128_tokens_back_and_turns_otherwise_there():
    """Its own code, SGLang's and transformers' class."""
    layers = specify(MINE["MiMo-V2-Flash"][0]).layers
    assert [x.window for x in layers[:7]] == [None, 129, 129, 129, 129, None, 129]
    assert {x.encoding.base for x in layers if x.window} == {1e4}
    assert layers == specify({"model_type": "mimo_v2_flash"}).layers
    with pytest.raises(Unread, match=r"its class takes rope_theta for 5000000\.0"):
        specify(MINE["MiMo-V2-Flash"][0] | {"rope_theta": 1e4})


def test_keys_of_a_class_count_before_those_of_older_files():
    """nomic-embed-text-v1.5's file has both, since transformers reads it."""
    older = MINE["nomic-embed-text"][0]
    added = {"max_position_embeddings": 2048, "hidden_size": 768, "rope_parameters": None}
    added["rope_parameters"] = {"rope_theta": 1000.0, "rope_type": "default"}
    spec = specify(older | added)
    assert (spec.context, spec.layers) == (2048, specify(older).layers)
    assert spec.notes == ("n_positions is 8192: max_position_embeddings counts",)
    assert specify({"model_type": "nomic_bert"}).context == 2048
    with pytest.raises(ModelError, match="rope_theta and rope_theta: disagree"):
        specify(older | added | {"rotary_emb_base": 500})


def test_kimi_in_kimi_k25():
    text = MINE["Kimi-K2"][0]
    whole = {"model_type": "kimi_k25", "text_config": text, "vision_config": {"hidden_size": 1152}}
    assert specify(whole).main == specify(text)
    assert specify(text) == replace(specify(text | {"model_type": "deepseek_v3"}), model="kimi_k2")


def test_comfyui_calls_dinov3_so():
    """Its image_encoders/dino3_large.json."""
    config = {"model_type": "dinov3", "hidden_size": 1024, "num_attention_heads": 16}
    config |= {"num_hidden_layers": 24, "rope_theta": 100.0, "pos_embed_rescale": 2.0}
    assert [layer.encoding for layer in specify(config).layers] == [Pictured(64, 100.0)] * 24


def test_a_part_that_is_not_read_is_in_the_notes():
    for name in ("Qwen2.5-VL", "MiniMax-M3-VL"):
        (note,) = specify(MINE[name][0]).notes
        assert note.startswith("config.json:vision_config.")


def test_nothing_is_said_of_what_was_not_read():
    """Step-3.7's 45 layers attend; a file without its parts says nothing of them."""
    text = {"num_hidden_layers": 45, "num_attention_heads": 64, "rope_theta": 10000.0}
    step = {"model_type": "step3p7", "text_config": text, "vision_config": {"hidden_size": 1536}}
    with pytest.raises(Unread, match=r"text_config.*posenc does not read step3p7_text: heads of"):
        specify(step)
    with pytest.raises(Unread, match="nothing under text_config and vision_config"):
        specify({"model_type": "qwen2_5_vl"})


def test_relative_keys_of_esm_are_refused_as_transformers_5_forgot_them():
    """They were Shaw's in transformers 4; 5.23 runs such a model without any positions."""
    config = {"model_type": "esm", "vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32}
    for kind in ("relative_key", "relative_key_query"):
        with pytest.raises(Unread, match=r"transformers 4 added learned vectors .* \(Shaw\)"):
            specify(config | {"position_embedding_type": kind})
    assert isinstance(
        specify(config | {"position_embedding_type": "rotary"}).layers[0].encoding, Rotary
    )


def test_xlnet_and_conformers():
    """With what would change their distances refused."""
    assert {x.encoding for x in specify({"model_type": "xlnet"}).layers} == {
        Projected(64, 16, 1024)
    }
    with pytest.raises(Unread, match="with clamp_len its distances are others"):
        specify({"model_type": "xlnet", "clamp_len": 256})
    conformer = {"model_type": "wav2vec2-conformer"}
    assert specify(conformer).layers[0].encoding == Projected(64, 12, 768, halves=False)
    assert specify(conformer | {"position_embeddings_type": None}).layers[0].encoding is None
    with pytest.raises(Unread, match="it turns what queries and keys are projected from"):
        specify(conformer | {"position_embeddings_type": "rotary"})


def test_mpt_with_other_slopes_says_whose_are_counted():
    """transformers' class reads `alibi_bias_max` and makes slopes of 8 all the same."""
    mpt = {"model_type": "mpt", "n_heads": 4, "d_model": 64}
    spec = specify(mpt | {"attn_config": {"alibi": True, "alibi_bias_max": 16}})
    assert spec.layers[0].encoding == Slopes(4)
    assert "alibi_bias_max is 16: slopes are those of 8 here" in spec.notes[0]
    assert specify(mpt | {"attn_config": {"alibi_bias_max": 8}}).notes == ()
    with pytest.raises(Unread, match=r"attn_config\.alibi: .*adds slopes all the same"):
        specify(mpt | {"attn_config": {"alibi": False}})
