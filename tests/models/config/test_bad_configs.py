"""Test that each bad input of FAULTS, numbers 1-33, raises one line with file, key and value.

The API is tested with each input, and the command with all of them, each in a new process.
"""

import json
import subprocess
import sys
from math import inf

import pytest
from fuzz.configs import fuzz
from refusals import refused

from posenc.models.config import read, specify
from posenc.models.files.errors import ModelError

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 2,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONG = {"rope_type": "longrope", "short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
LONG |= {"original_max_position_embeddings": 4096}


def scaled(base, **changed):
    return {"rope_scaling": base | changed}


def without(base, key):
    return {"rope_scaling": {k: v for k, v in base.items() if k != key}}


def seen(**settings):
    """Write the config of a model with several axes, Qwen2-VL."""
    return {"model_type": "qwen2_vl_text", "rope_scaling": {"rope_type": "default"} | settings}


def longrope(which, factors):
    return scaled(LONG, **{which: factors})


HUGE = 10**400
BAD = {  # number in FAULTS → changes to a Llama's config, and the expected message
    "1 theta 0": ({"rope_theta": 0}, "rope_theta: must be a number, got 0, allowed: above 1"),
    "2 theta negative": ({"rope_theta": -1}, "rope_theta: must be a number, got -1"),
    "3 theta NaN": ({"rope_theta": float("nan")}, "rope_theta: must be a number, got nan"),
    "4 theta inf": ({"rope_theta": float("inf")}, "rope_theta: must be a number, got inf"),
    "5 theta text": ({"rope_theta": "10000"}, "rope_theta: must be a number, got '10000'"),
    "6 theta 10^400": ({"rope_theta": HUGE}, "rope_theta: must be a number, got 1000000000"),
    "7 theta 1": ({"rope_theta": 1}, "rope_theta: must be a number, got 1, allowed: above 1"),
    "8 type": (
        scaled(YARN, rope_type="yarm"),
        "rope_scaling.rope_type: must be a known method, got 'yarm', allowed: default, linear, ntk,"
        " dynamic, yarn, longrope, llama3, proportional",
    ),
    "8b type of another kind": (
        scaled(YARN, rope_type=3),
        "rope_type: must be a known method, got 3",
    ),
    "9 factor 0": (scaled(YARN, factor=0), "factor: must be a number, got 0, allowed: above 0"),
    "10 factor negative": (
        scaled(YARN, factor=-2),
        "rope_scaling.factor: must be a number, got -2",
    ),
    "11 factor NaN": (scaled(YARN, factor=float("nan")), "rope_scaling.factor: must be a number"),
    "12 factor true": (scaled(YARN, factor=True), "factor: must be a number, got True"),
    "13 factor missing": (without(LLAMA3, "factor"), "rope_scaling.factor: is missing"),
    "14 factor text": (scaled(YARN, factor="2"), "rope_scaling.factor: must be a number, got '2'"),
    "15 betas swapped": (
        scaled(YARN, beta_fast=1, beta_slow=32),
        "rope_scaling.beta_slow: must not exceed beta_fast, which is 1, got 32",
    ),
    "16 original 0": (
        scaled(YARN, original_max_position_embeddings=0),
        "original_max_position_embeddings: must be a whole number, got 0, allowed: 1 … 2⁵³",
    ),
    "17 original negative": (
        scaled(YARN, original_max_position_embeddings=-5),
        "original_max_position_embeddings: must be a whole number, got -5",
    ),
    "18 attention factor": (
        scaled(YARN, attention_factor=-1),
        "rope_scaling.attention_factor: must be a number, got -1, allowed: above 0",
    ),
    "19 low above high": (
        scaled(LLAMA3, low_freq_factor=8),
        "rope_scaling.low_freq_factor: must not exceed high_freq_factor, which is 4, got 8",
    ),
    "20 low 0": (scaled(LLAMA3, low_freq_factor=0), "low_freq_factor: must be a number, got 0"),
    "21 list too short": (
        longrope("long_factor", [2.0] * 63),
        "rope_scaling.long_factor: must be a list of 64 numbers, got a list of 63",
    ),
    "22 list with 0": (
        longrope("short_factor", [1.0] * 63 + [0.0]),
        r"rope_scaling.short_factor\[63\]: must be a number, got 0.0, allowed: above 0",
    ),
    "22b list with NaN": (
        longrope("short_factor", [float("nan")] + [1.0] * 63),
        r"short_factor\[0\]: must be a number, got nan",
    ),
    "22c list with negative": (
        longrope("long_factor", [1.0] * 5 + [-1] + [1.0] * 58),
        r"long_factor\[5\]: must be a number, got -1",
    ),
    "23 list as text": (longrope("long_factor", "[1, 2]"), "must be a list of 64 numbers, got"),
    "23b list missing": (without(LONG, "short_factor"), "rope_scaling.short_factor: is missing"),
    "24 head_dim 65": (
        {"head_dim": 65},
        "head_dim: must rotate an even number of channels from 2 to 65, got 65",
    ),
    "25 head_dim 0": (
        {"head_dim": 0},
        "head_dim: must be a whole number, got 0, allowed: 1 … 4096",
    ),
    "26 head_dim -1": ({"head_dim": -1}, "head_dim: must be a whole number, got -1"),
    "27 head_dim 1": (
        {"head_dim": 1},
        "head_dim: must rotate an even number of channels from 2 to 1, got 1",
    ),
    "28 partial 1.5": (
        {"partial_rotary_factor": 1.5},
        "partial_rotary_factor: must be a number, got 1.5, allowed: above 0 and at most 1",
    ),
    "28b partial odd": (
        {"model_type": "stablelm", "partial_rotary_factor": 0.33, "hidden_size": 3200},
        "partial_rotary_factor: must rotate an even number of channels from 2 to 100, got 33",
    ),
    "28c partial 0": ({"partial_rotary_factor": 0}, "partial_rotary_factor: must be a number"),
    "29 heads 0": (
        {"num_attention_heads": 0},
        "num_attention_heads: must be a whole number, got 0",
    ),
    "30 kv heads": (
        {"num_attention_heads": 4, "num_key_value_heads": 3},
        "num_key_value_heads: must divide num_attention_heads, got 3, allowed: divisors of 4",
    ),
    "31 length -1": (
        {"max_position_embeddings": -1},
        "max_position_embeddings: must be a whole number, got -1",
    ),
    "31b length 0": ({"max_position_embeddings": 0}, "must be a whole number, got 0"),
    "32 table": (
        {"model_type": "bert", "max_position_embeddings": 10**12, "rope_theta": None},
        "max_position_embeddings: is too large, since the position table would need 14901.2 TiB",
    ),
    "33 disagree": (
        {"rope_scaling": YARN, "rope_parameters": {**YARN, "factor": 8.0, "rope_theta": 5e5}},
        "rope_parameters.factor and rope_scaling.factor: disagree: 8.0 and 4.0",
    ),
    "33b types disagree": (
        {"rope_scaling": YARN, "rope_parameters": {"rope_type": "default"}},
        "rope_parameters.rope_type and rope_scaling.rope_type: disagree: 'default' and 'yarn'",
    ),
    "33c two spellings disagree": (
        scaled(YARN, type="linear"),
        "rope_scaling.rope_type and rope_scaling.type: disagree: 'yarn', 'linear'",
    ),
    "33d bases disagree": (
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        "rope_parameters.rope_theta and rope_theta: disagree: 10000.0 and 500000.0",
    ),
    "33e lengths disagree": (
        {"rope_scaling": YARN, "original_max_position_embeddings": 4096},
        "rope_scaling.original_max_position_embeddings and original_max_position_embeddings:"
        " disagree: 2048 and 4096",
    ),
    "unknown key": (
        scaled(YARN, attn_factor=1.1),
        "rope_scaling.attn_factor: is not a key of rope_type 'yarn'; did you mean"
        r" attention_factor\?, got 1.1, allowed: rope_type",
    ),
    "a factor of another method": (
        scaled({"rope_type": "linear", "factor": 2.0}, long_factor=[1.0]),
        "rope_scaling.long_factor: is not a key of rope_type 'linear'",
    ),
    "an unknown key beside": (
        {"use_dynamic_ntk": True},
        "use_dynamic_ntk: may change positions, but posenc does not support it",
    ),
    "settings that are not an object": (
        {"rope_scaling": "yarn"},
        "rope_scaling: must be an object",
    ),
    "model_type that is not a name": ({"model_type": 7}, "model_type: must be a name, got 7"),
    "layers that are too many": ({"num_hidden_layers": 10**9}, "is too large, got 1000000000"),
    "types of other layers": (
        {"model_type": "qwen2", "layer_types": ["full_attention"]},
        "layer_types: must have 2 entries",
    ),
    "a type that is a list": (
        scaled(YARN, rope_type=["yarn"]),
        r"rope_type: must be a known method, got \['",
    ),
    "a type that is an object": (
        scaled(YARN, rope_type={}),
        "rope_type: must be a known method, got {}",
    ),
    "longrope from one token": (
        scaled(LONG, original_max_position_embeddings=1),
        "original_max_position_embeddings: must be at least 2, .* got 1",
    ),
    "a factor of next to nothing": (
        scaled(YARN, factor=5e-324),
        "factor: must be a number, got 5e-324, allowed: above 0 by at least 1e-09",
    ),
    "a factor too large": (
        scaled(LLAMA3, factor=1e308),
        "factor: must be a number, got 1e\\+308, allowed: above 0 and at most 2⁵³",
    ),
    "a factor that no float holds": (scaled(YARN, factor=2**53 + 1), "factor: must be a number"),
    "factors in a list too large": (
        longrope("long_factor", [1e308] * 64),
        r"long_factor\[0\]: must be a number, got 1e\+308, allowed: above 0, at most 2⁵³",
    ),
    "settings for types of layers that are settings": (
        {"rope_parameters": {"factor": {"rope_type": "default"}}, "rope_theta": None},
        "rope_parameters.factor: is not a key of rope_type 'default', got {'rope_type'",
    ),
    "a head too wide": (
        {"head_dim": 10**9},
        "head_dim: must be a whole number, got 1000000000, allowed: 1 … 4096",
    ),
    "heads too wide": (
        {"hidden_size": 2**31},
        "hidden_size: must be at most 4096 channels for each of 32 heads, got 2147483648",
    ),
    "one pair, and a ramp over pairs": (
        scaled(YARN) | {"head_dim": 2},
        "rope_scaling.rope_type: yarn must have at least two rotated pairs, got one",
    ),
    "interleaved sections of unlike shares": (
        seen(mrope_section=[16, 24, 24]) | {"model_type": "qwen3_vl_text"},
        r"mrope_section: must be \[16, 21, 21\] for interleaved axes, got \[16, 24, 24\]",
    ),
    "an axis without a pair": (
        seen(mrope_section=[64, 0]),
        r"mrope_section: must give each axis at least one pair, got \[64, 0\]",
    ),
    "sections that do not fit": (
        seen(mrope_section=[16, 24, 25]),
        "rope_scaling.mrope_section: must sum to 64,",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_its_own_line(name):
    changed, message = BAD[name]
    config = {key: value for key, value in (LLAMA | changed).items() if value is not None}
    with pytest.raises(ModelError, match=message) as error:
        specify(config)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("config.json:")
    assert len(str(error.value)) < 500


def test_the_config_they_are_changed_from_is_sound():
    for changed in ({}, *({"rope_scaling": s} for s in (YARN, LLAMA3, LONG))):
        assert len(specify(LLAMA | changed).layers) == 2


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        (scaled({"rope_type": "linear", "factor": 0.5}), "below 1 shortens the context"),
        (scaled(YARN, mscale=0.7), "mscale without mscale_all_dim has no effect"),
        (
            scaled(YARN, mrope_section=[16, 24, 24], mrope_interleaved=True),
            "mrope_section is (16, 24, 24), which the code of llama ignores",
        ),
    ],
)
def test_what_is_legal_but_odd_gets_a_note(changed, note):
    assert any(note in said for said in specify(LLAMA | changed).notes)


COUNTED = """
import atexit, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))
calls = 0

def count(frame, event, function):
    global calls
    calls += event in ("call", "c_call")

def said():
    sys.setprofile(None)
    print(calls, "torch" in sys.modules)

atexit.register(said)
sys.setprofile(count)
from posenc.commands import cli
cli.main(["inspect", sys.argv[1]])
"""


@pytest.mark.slow
def test_the_command_answers_in_few_calls_and_little_memory(tmp_path):
    """Run each in a process limited to 512 MB: exit code 2 and one line, without importing torch.

    The import of torch alone needs 1,200,000 calls.
    """
    for name in list(BAD)[::5]:
        config = LLAMA | BAD[name][0]
        path = tmp_path / "config.json"
        path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
        done = subprocess.run(
            [sys.executable, "-c", COUNTED, str(path)], capture_output=True, text=True
        )
        assert done.returncode == 2, name
        assert done.stderr.startswith("error: config.json:"), name
        assert done.stderr.count("\n") == 1, name
        calls, torch_loaded = done.stdout.split()
        assert (int(calls) < 400_000, torch_loaded) == (True, "False"), (name, calls)


def test_a_bad_file_is_refused_before_torch_is_loaded(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | {"rope_theta": 0}))
    code = (
        "import sys; from posenc.models.config import read\n"
        "from pathlib import Path\n"
        "try: read(Path(sys.argv[1]))\n"
        "except ValueError as error: print(error)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    message, loaded = done.stdout.splitlines()
    assert message == "config.json:rope_theta: must be a number, got 0, allowed: above 1"
    assert loaded == "False"


def test_a_folder_without_a_config_says_so(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with refused(ModelError, "config.json"):
        read(tmp_path)


def test_configs_changed_at_random_are_read_or_refused_in_one_line():
    """Fuzz configs: none may raise a traceback or take seconds; see tests/fuzz/configs.py."""
    count, failures = fuzz(seconds=inf, seed=0, runs=800)
    assert count == 800
    assert failures == {}


@pytest.mark.parametrize("model", ["deepseek_v2", "deepseek_v3", "kimi_k2", "minicpm3"])
def test_latent_keys_are_made_for_every_head(model):
    """With different numbers, the classes of transformers raise a RuntimeError for any text."""
    config = {"model_type": model, "num_attention_heads": 16, "num_key_value_heads": 8}
    with refused(ModelError, "num_key_value_heads", 8, 16):
        specify(config)
    assert specify(config | {"num_key_value_heads": 16}).groups == 16


def test_types_of_layers_under_two_names_must_agree():
    """In transformers `layers_block_type` overrides `layer_types`, and either is read alone."""
    one, other = ["mamba", "attention"], ["attention", "mamba"]
    config = {"model_type": "granitemoehybrid", "num_hidden_layers": 2}
    for name in ("layer_types", "layers_block_type"):
        layers = specify(config | {name: one}).layers
        assert [layer.attends for layer in layers] == [False, True]
    with refused(ModelError, "layers_block_type", "layer_types"):
        specify(config | {"layer_types": one, "layers_block_type": other})


def test_a_base_that_the_class_of_transformers_ignores_is_noted():
    """`NomicBertConfig` ignores the older key and always uses 1,000."""
    transformers = pytest.importorskip("transformers")
    config = {"model_type": "nomic_bert", "rotary_emb_base": 30_000}
    built = transformers.AutoConfig.for_model(**config)
    assert built.rope_parameters["rope_theta"] == 1000
    spec = specify(config)
    assert spec.rotary[0].base == 30_000
    (note,) = [note for note in spec.notes if "rotary_emb_base" in note]
    assert "30000" in note.replace(",", "")
    assert "1000" in note.replace(",", "")
    spec = specify(config | {"rotary_emb_base": 1000})
    assert not any("rotary_emb_base" in note for note in spec.notes)
