"""Against the 35 published configurations and the values that transformers computes for them, kept
in tests/data/rope_configs.json; and against what is known of the layers from a model's makers."""

import json
import math

import pytest
import torch
from published import KINDS, LAYERS, MODELS, published

from posenc import ALiBi, DeBERTa, Learned, NoPE, RoPE, Sinusoidal, Sum, T5Bias
from posenc.models.config import read, specify
from posenc.models.errors import ModelError, Unread
from posenc.models.spec import (
    Buckets,
    Disentangled,
    Pictured,
    Rotary,
    Sharpened,
    Slopes,
    Table,
    Waves,
)
from posenc.temperature import Temperature


def turning(name):
    """How its layers turn that see the whole text."""
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
    """In Llama 4 and SmolLM3 a 1 in `no_rope_layers` says that the layer does turn."""
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
    assert specify(falcon | {"alibi": True}).layers[0].encoding == Slopes(4, 0.25)


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
