"""Test specifications of files that the package gguf writes against recorded facts about models."""

import gguf
import numpy as np
import pytest
from refusals import refused

from posenc.models.config import read
from posenc.models.config.gguf import MODELS, specify_gguf
from posenc.models.files.errors import ModelError, Unread


def written(path, architecture, tensors=None, **metadata):
    """Write a GGUF file with this metadata; `__` in a key means a dot."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        name = f"{architecture}.{key.replace('__', '.')}"
        kinds = {str: "string", int: "uint32", float: "float32", list: "array", bool: "bool"}
        getattr(writer, f"add_{kinds[type(value)]}")(name, value)
    for name, values in {"token_embd.weight": np.zeros((2, 4)), **(tensors or {})}.items():
        writer.add_tensor(name, np.asarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


SIZES = {"context_length": 4096, "embedding_length": 64, "block_count": 3}
SIZES |= {"attention__head_count": 4, "attention__head_count_kv": 2}


@pytest.mark.parametrize(
    ("architecture", "model", "layout"),
    [
        ("llama", "llama", "interleaved"),
        ("qwen2", "qwen2", "half"),
        ("phi3", "phi3", "half"),
        ("granite", "granite", "interleaved"),
    ],
)
def test_the_layout_is_that_of_the_file(tmp_path, architecture, model, layout):
    """llama.cpp reorders the queries and keys of Llama, but not those of Qwen."""
    path = written(tmp_path / "m.gguf", architecture, rope__freq_base=5e5, **SIZES)
    spec = read(path)
    (turn,) = spec.rotary
    assert (spec.model, len(spec.layers), spec.heads, spec.groups) == (model, 3, 4, 2)
    assert (turn.layout, turn.base, turn.dim, spec.context) == (layout, 5e5, 16, 4096)
    assert "translated from the metadata of m.gguf" in spec.notes[-1]


def test_scaling_and_partial_rotation(tmp_path):
    scaling = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    scaling["rope__scaling__original_context_length"] = 1024
    path = written(tmp_path / "m.gguf", "gptneox", rope__dimension_count=4, **scaling, **SIZES)
    (turn,) = read(path).rotary
    assert (turn.method, turn.factor, turn.trained) == ("yarn", 4.0, 1024)
    assert (turn.turned, turn.dim) == (4, 16)


def test_channels_that_turn_count_also_where_transformers_turns_all(tmp_path):
    """llama.cpp always reads the rotated channels; transformers' Llama ignores them."""
    path = written(tmp_path / "m.gguf", "llama", rope__dimension_count=8, **SIZES)
    (turn,) = read(path).rotary
    assert (turn.turned, turn.dim) == (8, 16)
    assert not any("ignores" in note for note in read(path).notes)


def test_a_head_cannot_turn_more_channels_than_it_has(tmp_path):
    path = written(tmp_path / "m.gguf", "llama", rope__dimension_count=20, **SIZES)
    with refused(ModelError, "dimension_count", 20, 1):
        read(path)


def test_gemma_has_a_local_base_that_its_file_does_not_say(tmp_path):
    more = {"attention__key_length": 32, "attention__sliding_window": 512}
    sizes = SIZES | {"block_count": 6}
    path = written(tmp_path / "m.gguf", "gemma3", rope__freq_base=1e6, **more, **sizes)
    layers = read(path).layers
    assert [(x.window, x.encoding.base) for x in layers] == [(512, 1e4)] * 5 + [(None, 1e6)]
    assert layers[0].encoding.dim == 32


def test_what_is_not_read_says_so(tmp_path):
    with refused(Unread, "'rwkv7'"):
        read(written(tmp_path / "a.gguf", "rwkv7", **SIZES))
    factors = written(
        tmp_path / "b.gguf", "llama", {"rope_freqs.weight": [1, 1, 1, 1, 1, 1, 2, 3]}, **SIZES
    )
    with refused(Unread, "rope_freqs"):
        read(factors)
    longrope = written(tmp_path / "c.gguf", "phi3", {"rope_factors_long.weight": [2.0]}, **SIZES)
    with refused(Unread, "rope_factors_long"):
        read(longrope)
    scaled = written(tmp_path / "d.gguf", "llama", attention__scale=0.5, **SIZES)
    with pytest.raises(Unread, match=r"llama\.attention\.scale: is not supported for this"):
        read(scaled)
    for name, key, value in (
        ("e", "rope__scaling__yarn_ext_factor", 0.5),
        ("f", "rope__scaling__attn_factor", 1.2),
    ):
        kind = "yarn" if name == "e" else "linear"
        scaling = {"rope__scaling__type": kind, "rope__scaling__factor": 2.0, key: value}
        message = "must be 1, since|is not supported with 'linear', got"
        with pytest.raises(Unread, match=message):
            read(written(tmp_path / f"{name}.gguf", "llama", **scaling, **SIZES))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rope__freq_base", float("nan"), "rope_theta: must be a number, got nan"),
        ("rope__freq_base", 0.0, "rope_theta: must be a number, got 0"),
        ("rope__dimension_count", 3, "must be even"),
        ("attention__head_count", 0, "num_attention_heads: must be a whole number, got 0"),
        (
            "rope__scaling__type",
            "magic",
            r"llama\.rope\.scaling\.type: must be a known method, got 'magic'",
        ),
        (
            "rope__scaling__type",
            "dynamic",
            "must be a known method, got 'dynamic', allowed: none, linear",
        ),
        (
            "rope__scaling__attn_factor",
            "1",
            r"m\.gguf:llama\.rope\.scaling\.attn_factor: must be a",
        ),
        ("rope__scaling__attn_factor", float("nan"), "attn_factor: must be a number, got nan"),
    ],
)
def test_metadata_that_cannot_be_is_refused(tmp_path, key, value, message):
    scaling = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    with pytest.raises(ModelError, match=message):
        read(written(tmp_path / "m.gguf", "llama", **scaling | SIZES | {key: value}))


def test_a_multiplier_that_is_no_number_is_refused(tmp_path):
    scaling = {"rope__scaling__type": "yarn", "rope__scaling__yarn_log_multiplier": ["1"]}
    path = written(tmp_path / "m.gguf", "mistral3", **scaling, **SIZES)
    with refused(ModelError, "_log_multiplier"):
        read(path)


@pytest.mark.parametrize(
    ("base", "factors", "message"),
    [
        (-1.0, np.ones(8), ["m.gguf", "freq_base", -1.0]),
        ("5", np.ones(8), ["m.gguf", "freq_base", "'5'"]),
        (5e5, np.zeros(8), ["Llama", 3]),
        (5e5, np.full(8, np.nan), ["Llama", 3]),
    ],
)
def test_factors_are_divided_by_nothing_that_is_no_number(tmp_path, base, factors, message):
    path = tmp_path / "m.gguf"
    tensors = {"rope_freqs.weight": factors}
    with refused(ModelError, *message):
        read(written(path, "llama", tensors, rope__freq_base=base, **SIZES))


def test_sizes_that_are_none_are_refused_by_their_key(tmp_path):
    """A missing size is computed from the others, so each must be valid."""
    path = tmp_path / "m.gguf"
    sizes = {f"granitemoe.{key.replace('__', '.')}": value for key, value in SIZES.items()}
    huge = sizes | {"general.architecture": "granitemoe"}
    huge["granitemoe.attention.key_length"] = 10**400
    with refused(ModelError, "head_dim", "1 … 4096"):
        specify_gguf(huge, {}, "m.gguf")
    with refused(ModelError, "num_attention_heads", 0):
        read(written(path, "granite", **SIZES | {"attention__head_count": 0}))


def test_widths_without_layers_say_nothing_of_the_layers(tmp_path):
    told = written(tmp_path / "a.gguf", "nemotron_h", **SIZES)
    widths = written(tmp_path / "b.gguf", "nemotron_h", feed_forward_length=[0], **SIZES)
    assert read(widths) == read(told)


def test_one_pair_cannot_be_scaled_from_the_fastest_to_the_slowest(tmp_path):
    keys = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    path = written(tmp_path / "m.gguf", "llama", rope__dimension_count=2, **keys, **SIZES)
    message = r"llama\.rope\.dimension_count: yarn must have at least two rotated pairs"
    with pytest.raises(ModelError, match=message):
        read(path)


LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA_3 |= {"original_max_position_embeddings": 8192, "rope_theta": 5e5}


def test_factors_of_llama_3_are_its_scaling(tmp_path):
    """Compare with transformers' function; the file has the divisors of the frequencies."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(head_dim=64, rope_parameters=LLAMA_3)
    scaled, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    factors = (5e5 ** -(np.arange(0, 64, 2) / 64)) / scaled.numpy()
    sizes = SIZES | {"attention__key_length": 64, "context_length": 131072}
    tensors = {"rope_freqs.weight": factors}
    path = written(tmp_path / "m.gguf", "llama", tensors, rope__freq_base=5e5, **sizes)
    spec = read(path)
    (turn,) = spec.rotary
    assert (turn.method, turn.factor, turn.ends, turn.trained) == ("llama3", 8.0, (1.0, 4.0), 8192)
    assert np.allclose(turn.frequencies(), scaled.numpy(), rtol=1e-5)
    assert (spec.context, spec.trained) == (131072, 8192)


def test_the_scale_of_granite_is_that_of_its_file(tmp_path):
    spec = read(written(tmp_path / "a.gguf", "granite", attention__scale=0.015625, **SIZES))
    assert {layer.scale for layer in spec.layers} == {0.015625}
    spec = read(written(tmp_path / "b.gguf", "granite", **SIZES))
    assert {layer.scale for layer in spec.layers} == {16**-0.5}


@pytest.mark.parametrize(
    ("architecture", "layers", "width", "true"),
    [("gemma2", 46, 4608, 144), ("gemma3", 62, 5376, 168), ("gemma2", 42, 4608, 128)],
)
def test_the_scale_of_gemma_27b_goes_by_its_width(tmp_path, architecture, layers, width, true):
    """llama.cpp recognises the 27B by its depth, since the file does not state the scale."""
    sizes = SIZES | {"block_count": layers, "embedding_length": width}
    sizes |= {"attention__head_count": 32, "attention__key_length": 128}
    path = written(tmp_path / "m.gguf", architecture, attention__sliding_window=512, **sizes)
    assert {layer.scale for layer in read(path).layers} == {true**-0.5}


def test_a_gain_beside_yarn_multiplies_yarns_own(tmp_path):
    scaling = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    scaling |= {"rope__scaling__original_context_length": 1024}
    usual = 1 + 0.1 * np.log(4)
    for name, more, gain in (
        ("a", {}, usual),
        ("b", {"rope__scaling__attn_factor": 1.0}, usual),
        ("c", {"rope__scaling__attn_factor": 1.25}, 1.25 * usual),
    ):
        (turn,) = read(
            written(tmp_path / f"{name}.gguf", "qwen2", **scaling, **more, **SIZES)
        ).rotary
        assert turn.gain == pytest.approx(gain)


def test_keys_of_yarn_count_where_llama_cpp_reads_them(tmp_path):
    """Among these architectures, llama.cpp reads the keys for mistral3 only."""
    scaling = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    scaling |= {"rope__scaling__yarn_beta_fast": 16.0, "rope__scaling__yarn_beta_slow": 2.0}
    scaling |= {"rope__scaling__yarn_log_multiplier": 0.5}
    usual = 1 + 0.1 * np.log(4)
    spec = read(written(tmp_path / "a.gguf", "mistral3", **scaling, **SIZES))
    assert spec.rotary[0].ends == (2.0, 16.0)
    assert spec.rotary[0].gain == pytest.approx(usual / (1 + 0.05 * np.log(4)))
    assert not any("does not read" in note for note in spec.notes)
    spec = read(written(tmp_path / "b.gguf", "qwen2", **scaling, **SIZES))
    assert spec.rotary[0].ends == (1.0, 32.0)
    assert spec.rotary[0].gain == pytest.approx(usual)
    unread = [note.split()[0] for note in spec.notes if "llama.cpp does not read" in note]
    assert unread == [
        f"qwen2.rope.scaling.yarn_{key}" for key in ("beta_fast", "beta_slow", "log_multiplier")
    ]


def test_a_window_under_olmo2_makes_an_olmo_3(tmp_path):
    """Every fourth layer has full attention, and only these layers are scaled."""
    scaling = {"rope__scaling__type": "yarn", "rope__scaling__factor": 8.0}
    scaling |= {"rope__scaling__original_context_length": 8192, "rope__freq_base": 5e5}
    sizes = SIZES | {"block_count": 8, "attention__sliding_window": 1024}
    spec = read(written(tmp_path / "m.gguf", "olmo2", **scaling, **sizes))
    said = [(layer.window, layer.encoding.method, layer.encoding.base) for layer in spec.layers]
    assert said == ([(1024, "default", 5e5)] * 3 + [(None, "yarn", 5e5)]) * 2
    assert spec.model == "olmo3"
    assert read(written(tmp_path / "b.gguf", "olmo2", **SIZES)).model == "olmo2"


def test_heads_of_keys_say_which_layers_attend(tmp_path):
    sizes = SIZES | {"block_count": 4, "attention__head_count_kv": [0, 2, 0, 2]}
    for architecture, more, bare in (
        ("granitehybrid", {"attention__scale": 0.5, "rope__scaling__finetuned": True}, False),
        ("granitehybrid", {"attention__scale": 0.5, "rope__scaling__finetuned": False}, True),
        ("granitehybrid", {"attention__scale": 0.5}, False),
        ("lfm2", {}, False),
        ("nemotron_h", {"feed_forward_length": [0, 0, 64, 0]}, True),
    ):
        name = f"{architecture}{bare}{len(more)}.gguf"
        spec = read(written(tmp_path / name, architecture, **more, **sizes))
        assert [layer.attends for layer in spec.layers] == [False, True, False, True]
        assert (spec.layers[1].encoding is None) == bare
        assert spec.groups == 2


def test_latent_keys_of_deepseek(tmp_path):
    """The converter stores a tenth of mscale_all_dim, and keys as latents."""
    scaling = {"rope__scaling__type": "yarn", "rope__scaling__factor": 40.0}
    scaling |= {"rope__scaling__original_context_length": 4096}
    scaling |= {"rope__scaling__yarn_log_multiplier": 0.1, "rope__dimension_count": 64}
    sizes = SIZES | {"attention__head_count": 16, "attention__head_count_kv": 1}
    lengths = {"attention__key_length": 576, "attention__key_length_mla": 192}
    spec = read(written(tmp_path / "m.gguf", "deepseek2", **scaling, **lengths, **sizes))
    (turn,) = spec.rotary
    assert (turn.turned, turn.dim, turn.trailing, turn.layout) == (64, 192, True, "interleaved")
    assert (turn.gain, spec.groups) == (1.0, 16)
    assert turn.logit_gain == pytest.approx((1 + 0.1 * np.log(40)) ** 2)


def test_hybrids_of_qwen_turn_a_quarter_of_some_layers(tmp_path):
    sizes = SIZES | {"attention__key_length": 256, "block_count": 8, "rope__dimension_count": 64}
    more = {"full_attention_interval": 4, "rope__freq_base": 1e7}
    sections = {"rope__dimension_sections": [11, 11, 10, 0]}
    for architecture, given in (("qwen3next", {}), ("qwen35", sections), ("qwen35moe", sections)):
        spec = read(
            written(tmp_path / f"{architecture}.gguf", architecture, **more, **given, **sizes)
        )
        (turn,) = spec.rotary
        assert (turn.turned, turn.dim, turn.base, turn.layout) == (64, 256, 1e7, "half")
        assert turn.sections == ((11, 11, 10) if given else ())
        assert [n for n, layer in enumerate(spec.layers) if layer.attends] == [3, 7]


def test_llama_4_ministral_and_exaone_keep_what_llama_cpp_knows_of_them(tmp_path):
    sizes = SIZES | {"block_count": 4, "attention__key_length": 16}
    layers = read(written(tmp_path / "a.gguf", "llama4", **sizes)).layers
    assert [(layer.encoding is None, layer.window) for layer in layers] == [(False, 8192)] * 3 + [
        (True, None)
    ]
    scaling = {"rope__scaling__type": "yarn", "rope__scaling__factor": 16.0}
    scaling |= {
        "rope__scaling__original_context_length": 16384,
        "attention__temperature_scale": 0.1,
    }
    scaling |= {"rope__scaling__yarn_log_multiplier": 1.0}
    layer = read(written(tmp_path / "b.gguf", "mistral3", **scaling, **sizes)).layers[0]
    assert (layer.temperature.every, layer.encoding.gain) == (16384, 1.0)
    small = read(written(tmp_path / "c.gguf", "exaone4", **sizes))
    assert not any(layer.window or layer.encoding is None for layer in small.layers)
    large = read(written(tmp_path / "d.gguf", "exaone4", attention__sliding_window=64, **sizes))
    assert [(layer.window, layer.encoding is None) for layer in large.layers] == [
        (64, False)
    ] * 3 + [(None, True)]


@pytest.mark.parametrize(
    ("architecture", "turned"),
    [("qwen3moe", 16), ("glm4moe", 8), ("minimax-m2", 8), ("seed_oss", 16), ("granitemoe", 16)],
)
def test_other_architectures(tmp_path, architecture, turned):
    sizes = SIZES | {"attention__key_length": 16, "rope__dimension_count": turned}
    spec = read(written(tmp_path / "m.gguf", architecture, rope__freq_base=1e6, **sizes))
    (turn,) = spec.rotary
    assert (turn.turned, turn.dim, turn.base) == (turned, 16, 1e6)
    assert turn.layout == ("interleaved" if architecture == "granitemoe" else "half")


def test_a_bert_has_a_table(tmp_path):
    spec = read(written(tmp_path / "m.gguf", "bert", attention__causal=False, **SIZES))
    assert (spec.embedding.rows, spec.layers[0].causal) == (4096, False)


# llama.cpp's defaults for 4 layers of 4 heads, 64 channels wide, with required keys only: for each
# layer whether it attends, its window, and whether it is rotated.
REQUIRED = {"context_length": 4096, "embedding_length": 64, "block_count": 4}
REQUIRED |= {"attention__head_count": 4}
PLAIN = [(True, None, True)] * 4
HYBRID = [(False, None, False)] * 3 + [(True, None, True)]
OTHERS = {
    "llama4": ({}, [(True, 8192, True)] * 3 + [(True, None, False)]),
    "cohere2": ({"attention__sliding_window": 8}, [(True, 8, True)] * 3 + [(True, None, False)]),
    "smollm3": ({}, [(True, None, True)] * 3 + [(True, None, False)]),
    "gemma2": ({}, [(True, 4096, True), (True, None, True)] * 2),
    "gpt-oss": ({"attention__sliding_window": 8}, [(True, 8, True), (True, None, True)] * 2),
    "qwen3next": ({}, HYBRID),
    "qwen35": ({"rope__dimension_sections": [3, 3, 2, 0]}, HYBRID),
    "qwen35moe": ({"rope__dimension_sections": [3, 3, 2, 0]}, HYBRID),
    "bert": ({}, [(True, None, False)] * 4),
    "nemotron_h": ({}, [(True, None, False)] * 4),
    "deepseek2": ({"rope__dimension_count": 8}, PLAIN),
}


@pytest.mark.parametrize("architecture", MODELS)
def test_missing_keys_take_the_defaults_of_llama_cpp(tmp_path, architecture):
    """Compare with `load_hparams` of llama.cpp at the commit that the table names."""
    required, expected = OTHERS.get(architecture, ({}, PLAIN))
    spec = read(written(tmp_path / "m.gguf", architecture, **REQUIRED, **required))
    layers = [(layer.attends, layer.window, layer.encoding is not None) for layer in spec.layers]
    assert layers == expected
    assert (spec.heads, spec.groups, spec.context) == (4, 4, 4096)
    turned = 8 if architecture == "deepseek2" else 16
    for turn in spec.rotary:
        assert (turn.dim, turn.turned, turn.base, turn.method) == (16, turned, 1e4, "default")
        assert (turn.factor, turn.gain, turn.logit_gain) == (1, 1, 1)
    for layer in spec.layers:
        assert layer.causal
        assert layer.scale in (None, 0.25)
        assert layer.softcap == (50 if architecture == "gemma2" else None)
        sharpened = architecture == "llama4" and layer.encoding is None
        assert (layer.temperature is not None) == sharpened


@pytest.mark.parametrize("architecture", MODELS)
def test_keys_without_which_llama_cpp_opens_nothing_are_asked_for(tmp_path, architecture):
    required = REQUIRED | OTHERS.get(architecture, ({}, None))[0]
    for key in required:
        others = {one: value for one, value in required.items() if one != key}
        path = written(tmp_path / f"{key}.gguf", architecture, **others)
        with pytest.raises(ModelError) as caught:
            read(path)
        assert f"{architecture}.{key.replace('__', '.')}" in str(caught.value)


@pytest.mark.parametrize("key", ["rope__scaling__factor", "rope__scale_linear"])
def test_a_factor_without_a_type_is_linear(tmp_path, key):
    (turn,) = read(written(tmp_path / "m.gguf", "llama", **SIZES, **{key: 4.0})).rotary
    assert (turn.method, turn.factor) == ("linear", 4.0)


def test_the_type_none_and_a_factor_of_0_scale_nothing(tmp_path):
    for name, more in (
        ("a", {"rope__scaling__type": "none", "rope__scaling__factor": 4.0}),
        ("b", {"rope__scaling__type": "linear", "rope__scaling__factor": 0.0}),
        ("c", {"rope__scaling__factor": 1.0, "rope__scale_linear": 4.0}),
    ):
        (turn,) = read(written(tmp_path / f"{name}.gguf", "llama", **more, **SIZES)).rotary
        assert (turn.method, turn.factor) == ("default", 1.0)


@pytest.mark.parametrize("architecture", ["gptneox", "stablelm", "phi2", "glm4moe"])
@pytest.mark.parametrize("stated", [{}, {"rope__dimension_count": 16}])
def test_heads_turn_as_a_whole_unless_the_file_states_less(tmp_path, architecture, stated):
    (turn,) = read(written(tmp_path / "m.gguf", architecture, **stated, **SIZES)).rotary
    assert (turn.turned, turn.dim) == (16, 16)


def test_yarn_without_a_factor_stretches_nothing(tmp_path):
    scaling = {"rope__scaling__type": "yarn", "rope__scaling__original_context_length": 1024}
    (turn,) = read(written(tmp_path / "m.gguf", "gpt-oss", **scaling, **WINDOWED)).rotary
    assert (turn.method, turn.factor, turn.trained, turn.gain) == ("yarn", 1.0, 1024, 1.0)
    assert turn.rounded


WINDOWED = SIZES | {"attention__sliding_window": 128}


def test_yarn_of_deepseek_without_a_multiplier_sharpens_scores(tmp_path):
    """llama.cpp multiplies cos and sin by m, and the softmax scale by m², m = 1 + 0.1 ln 40."""
    scaling = {"rope__scaling__type": "yarn", "rope__scaling__factor": 40.0}
    scaling |= {"rope__dimension_count": 8}
    (turn,) = read(written(tmp_path / "m.gguf", "deepseek2", **scaling, **SIZES)).rotary
    m = 1 + 0.1 * np.log(40)
    assert (turn.gain, turn.logit_gain) == (pytest.approx(m), pytest.approx(m * m))


def test_the_window_of_exaone_4_is_that_of_64_layers(tmp_path):
    sizes = SIZES | {"block_count": 64}
    layers = read(written(tmp_path / "m.gguf", "exaone4", **sizes)).layers
    assert [layer.window for layer in layers] == ([4096] * 3 + [None]) * 16
    assert [layer.encoding is None for layer in layers] == ([False] * 3 + [True]) * 16


def test_a_window_that_llama_cpp_does_not_heed_is_noted(tmp_path):
    spec = read(written(tmp_path / "a.gguf", "phi3", **WINDOWED))
    assert any("phi3.attention.sliding_window is 128" in note for note in spec.notes)
    assert {layer.window for layer in spec.layers} == {128}


def test_layers_that_predict_further_tokens_are_not_counted(tmp_path):
    """GLM-4.5-Air has 46 layers, and a block_count of 47 in its GGUF file."""
    sizes = SIZES | {"block_count": 47, "nextn_predict_layers": 1}
    assert len(read(written(tmp_path / "m.gguf", "glm4moe", **sizes)).layers) == 46


def test_hybrids_may_list_their_recurrent_layers(tmp_path):
    flags = {"attention__recurrent_layers": [True, False, True, False]}
    spec = read(written(tmp_path / "m.gguf", "qwen3next", **REQUIRED, **flags))
    assert [layer.attends for layer in spec.layers] == [False, True, False, True]


@pytest.mark.parametrize(
    ("architecture", "more"),
    [
        ("granite", {"rope__scaling__finetuned": False}),
        ("lfm2", {"attention__sliding_window": 8}),
        ("llama4", {"attention__sliding_window": 0}),
        ("glm4moe", {"rope__dimension_sections": [8, 4, 4, 0]}),
        ("llama", {"rope__scaling__alpha": 4.0}),
        ("llama", {"rope__dimension_count_swa": 8}),
    ],
)
def test_keys_that_change_positions_unlike_posenc_are_refused(tmp_path, architecture, more):
    with pytest.raises(Unread) as caught:
        read(written(tmp_path / "m.gguf", architecture, **SIZES, **more))
    assert next(iter(more)).replace("__", ".") in str(caught.value)
