"""Test that transformers computes the formula's frequencies from written configs, and that no file
of the old folder is lost.
"""

import errno
import json
import os
import stat

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from refusals import refused
from transformers import AutoConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from posenc import frequencies
from posenc.encodings.rotary import extension
from posenc.models.config import specify
from posenc.models.extend import METHODS, changes, extend, extended, slowed
from posenc.models.files.errors import ModelError

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "max_position_embeddings": 2048,
    "rope_theta": 50000.0,
}
V5 = {k: v for k, v in LLAMA.items() if k != "rope_theta"}
V5 |= {"rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}}
GEMMA = {
    "model_type": "gemma3_text",
    "hidden_size": 512,
    "head_dim": 64,
    "num_attention_heads": 8,
    "num_hidden_layers": 6,
    "max_position_embeddings": 4096,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
}
GEMMA_V5 = {k: v for k, v in GEMMA.items() if "rope_" not in k and "pattern" not in k}
GEMMA_V5 |= {
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
    },
}


def by_formula(theta, method, factor, trained, length):
    """Compute the extended frequencies from the old ones."""
    match method:
        case "linear":
            return extension.interpolate(theta, factor)
        case "ntk":
            return extension.ntk(theta, factor)
        case "dynamic":
            return extension.dynamic_ntk(theta, length, trained, factor)
        case "yarn":
            return extension.yarn(theta, factor, trained)
        case "llama3":
            return extension.llama3(theta, factor, trained)


def in_transformers(config, length):
    module = LlamaRotaryEmbedding(AutoConfig.for_model(**config))
    module(torch.zeros(1), torch.arange(length)[None])  # dynamic scaling looks at the length
    return module.inv_freq


@pytest.mark.parametrize("config", [LLAMA, V5], ids=["v4", "v5"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("to", [2049, 5000, 8192])
def test_transformers_turns_as_the_formula_says(config, method, to):
    made, _ = extended(config, to, method)
    expected = by_formula(frequencies(64, 50000.0), method, to / 2048, 2048, to)
    torch.testing.assert_close(in_transformers(made, to), expected.float(), rtol=3e-6, atol=0)
    turn = specify(made).rotary[0]
    torch.testing.assert_close(turn.frequencies(to), expected, rtol=1e-9, atol=0)
    assert specify(made).context >= to


@pytest.mark.parametrize("config", [LLAMA, V5], ids=["v4", "v5"])
@pytest.mark.parametrize("length", [100, 2048, 5000])
def test_in_transformers_each_pair_turns_slower_by_its_own_factor_at_any_length(config, length):
    slower = [1.0 + pair / 8 for pair in range(32)]
    made = slowed(config, 5000, 2048, slower, gain=1.25)
    module = LlamaRotaryEmbedding(AutoConfig.for_model(**made))
    cos, _ = module(torch.zeros(1), torch.arange(length)[None])
    expected = frequencies(64, 50000.0) / torch.tensor(slower)
    torch.testing.assert_close(module.inv_freq, expected.float(), rtol=3e-6, atol=0)
    assert (cos[0, 0] == 1.25).all()
    assert made["max_position_embeddings"] == 5000


@pytest.mark.parametrize("config", [GEMMA, GEMMA_V5], ids=["v4", "v5"])
def test_layers_with_a_window_turn_as_they_did(config):
    made = specify(slowed(config, 8192, 4096, [2.0] * 32, gain=1.0))
    near, far = made.layers[0].encoding, made.layers[5].encoding
    assert near == specify(config).layers[0].encoding
    assert far.theta(8192) == pytest.approx([x / 2 for x in far.unscaled()])


def test_what_was_stretched_by_another_way_is_not_slowed_pair_by_pair():
    with refused(ModelError, "'yarn'"):
        slowed(extended(V5, 4096, "yarn")[0], 8192, 4096, [2.0] * 32, gain=1.0)


@pytest.mark.parametrize(("config", "place"), [(LLAMA, "rope_scaling"), (V5, "rope_parameters")])
def test_the_spelling_stays_as_it_was(config, place):
    made, _ = extended(config, 8192, "yarn")
    assert {"rope_scaling", "rope_parameters"} & made.keys() == {place}
    assert made[place]["rope_type"] == "yarn"
    kept = {**config, "rope_scaling": None} | {"rope_scaling": {"type": "default"}}
    if place == "rope_scaling":
        made, _ = extended(kept, 8192, "yarn")
        assert made["rope_scaling"]["type"] == "yarn"
        assert "rope_type" not in made["rope_scaling"]


@pytest.mark.parametrize("config", [GEMMA, GEMMA_V5], ids=["v4", "v5"])
@pytest.mark.parametrize("method", METHODS)
def test_layers_with_a_window_stay_as_they_are(config, method):
    before, (made, _) = specify(config), extended(config, 16384, method)
    after = specify(made)
    windowed = [layer.encoding for layer in after.layers if layer.window]
    assert windowed == [layer.encoding for layer in before.layers if layer.window]
    assert len(windowed) == 5
    assert after.layers[5].encoding != before.layers[5].encoding
    expected = by_formula(frequencies(64, 1e6), method, 4.0, 4096, 16384)
    torch.testing.assert_close(after.layers[5].encoding.frequencies(16384), expected)


def test_a_stretched_model_is_stretched_further_by_its_own_method_only():
    once, _ = extended(LLAMA, 8192, "yarn")
    twice, _ = extended(once, 16384, "yarn")
    assert twice["rope_scaling"] == extended(LLAMA, 16384, "yarn")[0]["rope_scaling"]
    assert twice["rope_scaling"]["factor"] == 8.0  # of 2048, not 2 of 8192
    with refused(ModelError, "'yarn'", "--method"):
        extended(once, 16384, "linear")


def test_settings_of_the_old_scaling_are_kept_but_those_that_follow_from_the_factor():
    scaling = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 1024}
    scaling |= {"beta_fast": 16, "attention_factor": 1.07}
    made, _ = extended(LLAMA | {"rope_scaling": scaling}, 4096, "yarn")
    assert made["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 1024,
        "beta_fast": 16,
    }


def test_both_stacks_of_a_model_that_share_settings_are_stretched():
    """Compare both stacks of HRM, which share one config, with YaRN's formula."""
    written, _ = extended({"model_type": "hrm_text"}, 4096, "yarn")
    stacks = specify(written).parts
    assert len(stacks) == 2
    for stack in stacks.values():
        (turn,) = stack.rotary
        wanted = extension.yarn(frequencies(turn.dim, turn.base), factor=2.0, trained=2048)
        assert torch.allclose(turn.frequencies(), wanted)


def test_the_text_part_of_a_composite_config_is_stretched():
    text = {k: v for k, v in GEMMA.items() if k != "model_type"} | {"model_type": "gemma3_text"}
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"image_size": 224}}
    made, _ = extended(config, 16384, "linear")
    assert made["vision_config"] == config["vision_config"]
    assert made["text_config"]["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    assert [change.key for change in changes(config, made)] == [
        "text_config.max_position_embeddings",
        "text_config.rope_scaling",
    ]


@pytest.mark.parametrize(
    ("config", "to", "method", "message"),
    [
        (LLAMA, 2048, "yarn", [2048, "`to`"]),
        ({"model_type": "gpt2"}, 9999, "yarn", ["'gpt2'"]),
        (
            LLAMA
            | {
                "rope_scaling": {
                    "rope_type": "longrope",
                    "short_factor": [1.0] * 32,
                    "long_factor": [2.0] * 32,
                    "original_max_position_embeddings": 1024,
                }
            },
            9999,
            "yarn",
            ["'longrope'"],
        ),
        (
            GEMMA | {"num_hidden_layers": 5},
            9999,
            "yarn",
            ["sliding_window"],
        ),
    ],
)
def test_what_cannot_be_stretched_is_refused(config, to, method, message):
    with refused(ModelError, *message):
        extended(config, to, method)


@pytest.mark.parametrize("model_type", ["codegen", "gptj", "roformer"])
@pytest.mark.parametrize(("method", "more"), [("ntk", {}), ("base", {"base": 1e6})])
def test_a_base_that_the_class_ignores_is_not_written(model_type, method, more):
    """These classes of transformers always compute angles with base 10,000."""
    with refused(ModelError, "rope_theta"):
        extended({"model_type": model_type}, 9999, method, **more)


@pytest.mark.parametrize("model_type", ["phi3", "phi4_multimodal", "phimoe", "cosmos3_edge_text"])
def test_a_rope_type_that_transformers_would_not_load_is_not_written(model_type):
    """`AutoConfig` raises for it, and loads a larger base."""
    config = {"model_type": model_type, "max_position_embeddings": 4096}
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
    with pytest.raises((KeyError, StrictDataclassClassValidationError)):
        AutoConfig.for_model(**config, rope_scaling=scaling)
    for method in ("linear", "dynamic", "yarn", "llama3"):
        with refused(ModelError, "rope_type", "transformers"):
            extended(config, 16384, method)
    if model_type != "cosmos3_edge_text":  # its class ignores the base, too
        made, _ = extended(config, 16384, "base", base=1e9)
        assert AutoConfig.for_model(**made).rope_parameters["rope_theta"] == 1e9


@pytest.mark.parametrize("model_type", ["gpt_oss", "ministral3"])
def test_what_a_class_takes_for_a_silent_config_is_kept(model_type):
    """transformers drops its own settings, base included, as soon as a config states some."""
    usual = AutoConfig.for_model(model_type)
    to = 2 * usual.max_position_embeddings
    made, _ = extended({"model_type": model_type}, to, "yarn")
    got, was = AutoConfig.for_model(**made).rope_parameters, usual.rope_parameters
    # 1e6 and 150,000 are the bases of the two; `truncate` is false in gpt-oss alone
    kept = ("rope_theta", "beta_fast", "beta_slow", "truncate", "original_max_position_embeddings")
    assert [got.get(key) for key in kept] == [was.get(key) for key in kept]
    assert got["factor"] == to / was["original_max_position_embeddings"]


def test_an_unknown_method_is_refused():
    with refused(ValueError, "`method`"):
        extended(LLAMA, 4096, "longrope")


def test_the_old_config_is_kept_beside_the_new_one_again_and_again(tmp_path):
    path = tmp_path / "config.json"
    first = json.dumps(LLAMA, indent=2) + "\n"
    path.write_text(first)
    made = extend(tmp_path, 4096, "yarn")
    second = path.read_text()
    again = extend(path, 8192, "yarn")
    assert (made.kept.name, again.kept.name) == ("config.original.json", "config.original.2.json")
    assert made.kept.read_text() == first
    assert again.kept.read_text() == second
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "config.json",
        "config.original.2.json",
        "config.original.json",
    ]
    assert [(c.key, c.before, c.after) for c in again.changes] == [
        ("max_position_embeddings", 4096, 8192),
        ("rope_scaling.factor", 2.0, 4.0),
    ]


def test_nothing_is_written_where_something_is_wrong(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | {"rope_theta": 0}))
    with pytest.raises(ModelError):
        extend(path, 4096, "yarn")
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_keys_that_have_nothing_to_do_with_it_stay_in_their_order(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(LLAMA | {"vocab_size": 5, "name": "é"}, indent=4, ensure_ascii=False)
    )
    extend(path, 4096, "linear")
    text = path.read_text()
    assert list(json.loads(text)) == [*LLAMA, "vocab_size", "name", "rope_scaling"]
    assert '    "name": "é"' in text


QWEN3 = LLAMA | {"model_type": "qwen3", "max_position_embeddings": 40960, "num_key_value_heads": 8}
RECIPE = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


@pytest.mark.parametrize(
    "said",
    [
        {"factor": 4, "trained": 32768},
        {"to": 131072, "trained": 32768},
        {"to": 131072, "factor": 4.0},
        {"to": 131072, "factor": 4.0, "trained": 32768},
    ],
)
def test_qwen3s_own_recipe_is_written(said):
    """By the model card, the config's 40,960 are 32,768 trained tokens and room for an answer."""
    made, _ = extended(QWEN3, said.pop("to", None), "yarn", **said)
    assert made["rope_scaling"] == RECIPE
    assert made["max_position_embeddings"] == 131072
    assert (specify(made).trained, specify(made).context) == (32768, 131072)


def test_a_factor_alone_is_of_what_the_config_says():
    made, _ = extended(LLAMA, None, "linear", factor=2.5)
    assert (made["max_position_embeddings"], made["rope_scaling"]["factor"]) == (5120, 2.5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("factor", [1.5, 4.0])
def test_every_method_takes_a_factor(method, factor):
    made, _ = extended(LLAMA, None, method, factor=factor)
    assert made == extended(LLAMA, round(2048 * factor), method)[0]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({}, ["`to`", "`factor`"]),
        ({"trained": 1024}, ["`to`", "`factor`"]),
        ({"factor": 1.0}, [1, "1,048,576"]),
        ({"factor": -4}, [1, "1,048,576", -4]),
        ({"factor": 1e308}, [1, "1,048,576"]),
        ({"factor": float("nan")}, [1, "1,048,576", "nan"]),
        ({"factor": 4, "trained": 0}, ["`trained`", 1, 0]),
        ({"to": 10**400}, ["`to`", 1]),
        ({"to": 8192, "factor": 4, "trained": 1024}, ["`factor`", 4, "`trained`", 1024]),
        ({"to": 8192, "factor": 3}, ["`to`", "`factor`", "`trained`"]),
        (
            {"factor": 4, "trained": 4096},
            ["max_position_embeddings", 2048, "`trained`", 4096],
        ),
        (
            {"factor": 2, "trained": 1000},
            [2000, 2, 1000],
        ),
    ],
)
def test_lengths_that_do_not_fit_together_are_refused(said, message):
    with refused(ValueError, *message):
        extended(LLAMA, said.pop("to", None), "yarn", **said)


def test_what_a_config_says_of_its_training_is_not_contradicted():
    once, _ = extended(LLAMA, 8192, "yarn")
    with refused(ModelError, 2048, "`trained`", 1024):
        extended(once, 16384, "yarn", trained=1024)
    with refused(ModelError, "`trained`", 1024):
        extended(LLAMA, 16384, "dynamic", trained=1024)


@pytest.mark.skipif(os.name != "posix", reason="modes as POSIX has them")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_the_mode_of_the_config_stays_and_the_kept_one_has_it_too(tmp_path, mode):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    path.chmod(mode)
    made = extend(path, 4096, "yarn")
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, made.kept)] == [mode, mode]


def test_the_kept_config_is_the_old_one_to_the_byte(tmp_path):
    path = tmp_path / "config.json"
    raw = json.dumps(LLAMA, indent=1).replace("\n", "\r\n").encode()
    path.write_bytes(raw)
    assert extend(path, 4096, "yarn").kept.read_bytes() == raw


def test_a_config_that_is_a_link_is_refused_and_both_stay_as_they_are(tmp_path):
    """The hub's cache has links to files that several revisions share."""
    (tmp_path / "model").mkdir()
    blob, path = tmp_path / "model" / "blob", tmp_path / "model" / "config.json"
    blob.write_text(json.dumps(LLAMA))
    path.symlink_to(blob)
    with pytest.raises(ModelError, match=r"is a link to .*blob, which other models may use"):
        extend(tmp_path / "model", 4096, "yarn")
    assert path.is_symlink()
    assert json.loads(blob.read_text()) == LLAMA
    assert len(list((tmp_path / "model").iterdir())) == 2


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_config_is_written_whole_or_not_at_all(tmp_path, monkeypatch, call):
    """Simulate a full disk at each call that may fail."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        extend(path, 4096, "yarn")
    assert json.loads(path.read_text()) == LLAMA
    assert {one.name for one in tmp_path.iterdir()} <= {"config.json", "config.original.json"}
