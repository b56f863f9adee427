"""Test the rotation in the rope settings of a config against transformers."""

import json
import math
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from published import published
from published_rotation import turning
from refusals import refused

from posenc.models.config import specify
from posenc.models.files.errors import ModelError
from posenc.models.length_risks import length_risks


@pytest.mark.parametrize("name", ["Llama-3.1-8B-Instruct", "Devstral-2-123B-Instruct"])
def test_four_spellings_make_one_specification(name):
    """F19: the four spellings `type` or `rope_type` in `rope_scaling` or `rope_parameters`."""
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


CONTEXTS = {  # F17: other programs multiply it twice
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
    spec = specify(published(name)).text_stack
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
    """In transformers 5's spelling, null is a type of layer without encoding."""
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


def test_sections_of_pictures_and_video():
    contiguous, interleaved = turning("Qwen2.5-VL-7B-Instruct"), turning("Qwen3-VL-2B (text)")
    assert (contiguous.sections, contiguous.interleaved) == ((16, 24, 24), False)
    assert (interleaved.sections, interleaved.interleaved) == ((24, 20, 20), True)
    assert contiguous.frequencies().shape == (3, 64)
    assert contiguous.encoding().axes == 3


def test_longrope_may_have_been_trained_on_two_tokens():
    """Two tokens are the shortest length with a logarithm above 0: √(1 + log(factor)/log 2)."""
    config = published("Phi-3.5-mini-instruct") | {"original_max_position_embeddings": 2}
    gain = specify(config).layers[0].encoding.gain
    factor = config["max_position_embeddings"] / 2
    assert gain == pytest.approx(math.sqrt(1 + math.log2(factor)))


def test_a_length_must_be_given_where_it_matters():
    spec = specify(published("Phi-3.5-mini-instruct"))
    with refused(ValueError, "'longrope'", "`length`"):
        spec.encodings()
    dynamic = {"rope_scaling": {"type": "dynamic", "factor": 2.0}}
    spec = specify(published("SmolLM2-135M-Instruct") | dynamic)
    with refused(ValueError, "`length`"):
        spec.encodings()
    assert spec.context == 16384


def test_a_key_that_tunes_another_method_is_a_note():
    """In Hunyuan's published dense models one factor raises the base permanently."""
    scaling = {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0}
    scaling |= {"mscale_all_dim": 0.0, "type": "dynamic"}
    config = {"model_type": "hunyuan_v1_dense", "head_dim": 128, "rope_scaling": scaling}
    config |= {"num_hidden_layers": 2, "max_position_embeddings": 262144, "rope_theta": 1e4}
    spec = specify(config)
    (turn,) = spec.rotary
    assert (turn.method, turn.base) == ("default", 1e4 * 1000 ** (128 / 126))
    assert (spec.context, spec.trained) == (262144, 262144)
    said = " ".join(spec.notes)
    assert "beta_fast is 32, which rope_type 'dynamic' does not read" in said
    assert "alpha is 1000, which raises the base from 10,000 to 11,158,839.9" in said
    with refused(ModelError, "factor", "'dynamic'"):
        specify(config | {"model_type": "llama", "rope_scaling": {"alpha": 2.0, "type": "dynamic"}})


@pytest.mark.parametrize("place", ["rope_parameters", "rope_scaling"])
def test_a_scaling_without_a_base_is_doubted(place):
    """unsloth#7028: a base was dropped; transformers 5 writes one beside each scaling."""
    config = published("SmolLM2-135M-Instruct") | {place: {"rope_type": "linear", "factor": 8.0}}
    assert not specify(config).doubts
    del config["rope_theta"]
    spec = specify(config)
    assert "but states no rope_theta; posenc uses 10,000" in spec.notes[0]
    problems, unknown = length_risks(spec, spec, 100)
    assert problems == []
    new = "so the base used in training may be different"
    assert [new in line for line in unknown] == ([True] if place == "rope_parameters" else [])


def test_scalings_that_were_lost_on_the_way_are_noted():
    """vllm#46280: an attention factor of 1; and a Llama 3 scaling without a longer context."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
    small = published("SmolLM2-135M-Instruct")
    assert not specify(small | {"rope_scaling": yarn}).notes
    (note,) = specify(small | {"rope_scaling": {**yarn, "attention_factor": 1.0}}).notes
    assert "attention_factor is 1, but the default of yarn ×4 is 1.13863" in note
    llama3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    llama3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    (note,) = specify(small | {"rope_scaling": llama3}).notes
    assert "is 8192, the length before scaling; llama3 ×8 extends it to 65536" in note


LINEAR = {"rope_type": "linear", "factor": 8.0}
FLAT = {"rope_parameters": {**LINEAR, "rope_theta": 123456.0}}
OLDER = {"rope_theta": 123456.0, "rope_scaling": {"type": "linear", "factor": 8.0}}


@pytest.mark.parametrize("keys", [FLAT, OLDER])
@pytest.mark.parametrize("model_type", ["gemma3_text", "olmo3"])
def test_a_scaling_that_transformers_leaves_out_is_read_as_meant_and_said(model_type, keys):
    """The class in transformers merges flat settings into a place that no layer reads."""
    transformers = pytest.importorskip("transformers")
    made = transformers.AutoConfig.for_model(model_type, **deepcopy(keys))
    assert made.rope_parameters["full_attention"]["rope_type"] == "default"
    spec = specify({"model_type": model_type} | keys)
    (full,) = {layer.encoding for layer in spec.layers if layer.window is None}
    assert (full.method, full.base, full.factor) == ("linear", 123456.0, 8.0)
    assert f"the class of {model_type} in transformers 5 drops them" in " ".join(spec.notes)
    right = {"rope_theta": 123456.0, "rope_scaling": LINEAR}
    made = transformers.AutoConfig.for_model(model_type, **deepcopy(right))
    assert made.rope_parameters["full_attention"]["rope_type"] == "linear"
    assert "drops them" not in " ".join(specify({"model_type": model_type} | right).notes)


@pytest.mark.parametrize("model_type", ["gemma4_text", "laguna", "lfm3", "mellum", "zaya"])
def test_settings_that_no_type_of_layer_takes_are_refused(model_type):
    """These settings were dropped silently; the classes fail without settings by type of layer."""
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(model_type, **deepcopy(FLAT))
    with torch.device("meta"), pytest.raises(KeyError, match=r"full_attention|hybrid"):
        transformers.AutoModel.from_config(config)
    with refused(ModelError, model_type):
        specify({"model_type": model_type} | FLAT)
    assert specify({"model_type": model_type, "rope_scaling": {"rope_type": "default"}}).layers


def test_settings_of_step_3_that_no_layer_takes_are_refused():
    with refused(ModelError, "full_attention"):
        specify({"model_type": "step3p5"} | FLAT)


INTERN = json.loads((Path(__file__).parents[2] / "data/intern_s1_pro.json").read_text("utf-8"))


def intern(**rope):
    """Return the published config of Intern-S1-Pro with other settings of FoPE."""
    config = deepcopy(INTERN["config"])
    config["text_config"]["rope_scaling"] |= rope
    return config


def test_the_fope_of_intern_s1_pro_is_read():
    """Waves ω with ω > 2π / 262,144 are kept, in each of 4 key heads; other pairs have sin 1."""
    spec = specify(intern()).text_stack
    kept = [j for j in range(64) if 5_000_000 ** (-j / 64) > 2 * math.pi / 262_144]
    assert (spec.kind, spec.context, len(spec.layers)) == ("fope", 262_144, 94)
    (encoding,) = {layer.encoding for layer in spec.layers}
    assert (encoding.waves, encoding.heads, encoding.spread) == (len(kept), 4, 0.5)
    fope = encoding.encoding()
    torch.nn.init.zeros_(fope.cosines)
    torch.nn.init.ones_(fope.sines)
    at = fope.prepare(torch.tensor([7]))
    assert at.cos.shape == (4, 1, 64)
    assert at.cos[..., : len(kept)].eq(0).all()
    waves = sum(math.sin(7 * 5_000_000 ** (-j / 64)) for j in kept)
    torch.testing.assert_close(at.sin[0, 0, 0].item(), waves, rtol=0, atol=1e-5)
    assert at.cos[..., len(kept) :].eq(1).all()
    assert at.sin[..., len(kept) :].eq(1).all()
    (shared,) = {x.encoding for x in specify(intern(fope_sep_head=False)).text_stack.layers}
    assert shared.heads == 1
    (few,) = {x.encoding for x in specify(intern(num_inv_freq=20)).text_stack.layers}
    assert few.waves == 20


def test_settings_of_fope_that_no_model_has_are_refused():
    with refused(ModelError, "fope_init_factor", "missing"):
        specify(intern(fope_init_factor=None, num_inv_freq=8))
    with refused(ModelError, "rope_type", "FoPE", "linear"):
        specify(intern(rope_type="linear", factor=2.0))
    with refused(ModelError, "num_inv_freq", "64"):
        specify(intern(num_inv_freq=65))
    llama = INTERN["config"]["text_config"] | {"model_type": "llama"}
    with refused(ModelError, "FoPE", "llama"):
        specify(llama)
