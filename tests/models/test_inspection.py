"""Test `inspect` against numbers computed by hand, the bases of Men et al. 2024 (table 2), and
published facts about each model.
"""

import json
import math
import re

import pytest
from published import KINDS, MODELS, published
from refusals import refused

import posenc
from posenc import ALiBi, NoPE, T5Bias
from posenc.analysis.frequencies import pairs, reach, smallest_base
from posenc.encodings.rotary.theta import frequencies, yarn
from posenc.models.files.errors import ModelError
from posenc.models.hf.saved import described
from posenc.models.inspection import inspect
from posenc.show.report.kinds.inspection import phrases

QWEN = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "num_hidden_layers": 28,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def inspected(tmp_path, config, target=None):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    return inspect(path, target)


def test_reach_is_where_the_sum_first_turns_negative():
    theta = frequencies(32, 100.0)
    sums = [sum(math.cos(m * t) for t in theta) for m in range(200)]
    first = next(m for m, value in enumerate(sums) if value < 0)
    assert reach(theta) == first
    assert reach(theta, limit=first) == first  # nowhere before
    assert reach(frequencies(128, 1e9), limit=5000) == 5000


@pytest.mark.parametrize(
    ("length", "base"), [(1024, 4.3e3), (4096, 2.7e4), (8192, 8.4e4), (65536, 2.1e6)]
)
def test_smallest_bases_are_those_that_were_published(length, base):
    """Compare with table 2 of the paper, for heads with 128 channels; its search was coarse."""
    assert smallest_base(128, length) == pytest.approx(base, rel=0.16)


def test_a_smallest_base_is_enough_and_one_step_less_is_not():
    base = smallest_base(64, 500)
    assert reach(frequencies(64, base), 500) == 500
    assert reach(frequencies(64, base / 1.01), 500) < 500


def test_no_base_is_named_for_lengths_to_which_none_was_looked_for(tmp_path):
    found = inspected(tmp_path, QWEN, target=10**9)
    assert not any("train further with a base" in line for line in found.advice)
    assert not any("base" in line for line in phrases.turning(found.groups[0].turning))
    found = inspected(tmp_path, QWEN | {"head_dim": 2}, target=40000)
    assert "within 40,000 tokens, without scaling: above 10¹⁵" in " ".join(
        phrases.turning(found.groups[0].turning)
    )
    (why,) = found.advice
    assert why.startswith("its config cannot be extended: config.json:rope_scaling.rope_type: ya")


def test_pairs_are_kept_stretched_and_interpolated():
    before = frequencies(128, 1e6)
    made = pairs(before, yarn(before, 4.0, 32768), 32768, 4.0)
    for pair, theta in zip(made, before, strict=True):
        assert pair.turns == pytest.approx(32768 * theta / (2 * math.pi))
        expected = {1.0: "kept", 4.0: "interpolated"}.get(round(pair.slower, 6), "stretched")
        assert pair.change == expected or abs(pair.slower - 1) < 0.01
        assert pair.wavelength == pytest.approx(2 * math.pi / theta * pair.slower)
    assert {pair.change for pair in made} == {"kept", "stretched", "interpolated"}
    still = pairs([1.0], [0.0], 10, 1.0)[0]
    assert (still.change, still.wavelength, still.slower) == ("still", math.inf, math.inf)


def test_qwen_within_its_length_has_nothing_to_fear(tmp_path):
    found = inspected(tmp_path, QWEN, target=32768)
    assert (found.problems, found.advice) == ([], [])
    (group,) = found.groups
    assert group.layers == list(range(28))
    assert group.does == "RoPE, 128 channels, base 1,000,000"
    turning = group.turning
    slowest = [j for j in range(64) if 32768 * 1e6 ** (-j / 64) < 2 * math.pi]
    assert turning.unfinished == len(slowest) == 24
    assert turning.changes == {"kept": 64}
    first = "24 of 64 pairs do not complete a turn in 32,768 tokens, the reach of these layers"
    assert phrases.turning(turning)[0].startswith(first)


def test_where_all_pairs_complete_a_turn_it_is_said_so(tmp_path):
    """θ of the slowest pair is 10,000^(−126/128): a turn in 54,410 tokens."""
    found = inspected(tmp_path, QWEN | {"rope_theta": 1e4, "max_position_embeddings": 60_000})
    first = "all pairs complete a turn within 60,000 tokens"
    assert phrases.turning(found.groups[0].turning)[0].startswith(first)


def test_beyond_its_length_new_angles_are_named_with_what_to_do(tmp_path):
    found = inspected(tmp_path, QWEN, target=131072)
    assert found.problems == [
        "24 of 64 pairs complete no turn in 32,768 tokens: up to 131,072 they reach angles"
        " that do not occur in shorter texts"
    ]
    assert f"posenc extend {tmp_path / 'config.json'} --to 131072 --method yarn" in found.advice[0]
    assert "train further with a base of 8,770,000 (now 1,000,000)" in found.advice[-1]


def test_a_stretched_model_says_from_what(tmp_path):
    found = inspected(tmp_path, QWEN | {"rope_scaling": YARN})
    assert (found.spec.context, found.spec.trained) == (131072, 32768)
    turning = found.groups[0].turning
    assert turning.changes == {"kept": 24, "stretched": 16, "interpolated": 24}
    assert phrases.turning(turning)[0] == "attention factor 1.13863: logits × 1.29648"
    assert "do not multiply the lengths again" in found.spec.notes[0]


def test_frequencies_that_depend_on_length_break_caches(tmp_path):
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    found = inspected(tmp_path, QWEN | {"rope_scaling": scaling}, target=40000)
    assert found.problems[0].startswith("dynamic: beyond 32,768 tokens all frequencies change")


def test_tables_end(tmp_path):
    config = {"model_type": "gpt2", "n_positions": 1024, "n_embd": 64, "n_head": 4, "n_layer": 2}
    found = inspected(tmp_path, config, target=2048)
    assert found.embedding == "learned table, 1,024 rows of 64"
    assert found.problems == ["the table has 1,024 rows: positions 1,024 … 2,047 have no row"]
    assert found.advice[0].startswith("train 1,024 more rows, or start from interpolated rows")
    assert inspected(tmp_path, config, target=1024).problems == []


def test_alibi_and_t5_break_nowhere(tmp_path):
    for config in ({"model_type": "bloom", "n_head": 8}, {"model_type": "t5"}):
        assert inspected(tmp_path, config, target=10**6).problems == []


def test_windows_keep_distances_as_they_were(tmp_path):
    config = {
        "model_type": "mistral",
        "sliding_window": 4096,
        "max_position_embeddings": 32768,
        "num_hidden_layers": 2,
    }
    found = inspected(tmp_path, config, target=10**6)
    assert found.problems == []
    turning = found.groups[0].turning
    assert (turning.trained, turning.span) == (4096, 4096)


def test_what_is_said_is_json(tmp_path):
    scaling = {"rope_type": "proportional", "factor": 1.0, "partial_rotary_factor": 0.25}
    found = inspected(tmp_path, QWEN | {"rope_scaling": scaling}, target=40000)
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert told["layers"] == 28
    assert told["alike"][0]["turning"]["pairs"][-1]["wavelength"] is None  # it stands still
    assert told["problems"] == found.problems


def test_other_parts_of_a_composite_model_are_inspected_too(tmp_path):
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}
    config["vision_config"] = {"model_type": "siglip_vision_model", "image_size": 224}
    found = inspected(tmp_path, config | {"vision_config": config["vision_config"]})
    assert found.spec.model == "gemma3_text"
    assert list(found.parts) == ["vision_config"]
    assert "learned table" in found.parts["vision_config"].embedding


METHODS = {  # what each published model does to its frequencies, of those that do anything
    "Llama-3.1-8B-Instruct": "llama3 ×8 from 8,192 tokens",
    "Llama-4-Scout-17B-16E (text)": "llama3 ×16 from 8,192 tokens",
    "Qwen2.5 (32B or 72B) + yarn recipe": "yarn ×4 from 32,768 tokens",
    "DeepSeek-V3 / R1": "RoPE, last 64 of 192 channels, base 10,000, yarn ×40 from 4,096 tokens",
    "Kimi-K2-Instruct": "yarn ×32 from 4,096 tokens",
    "gpt-oss-20b/120b": "yarn ×32 from 4,096 tokens",
    "Phi-3.5-mini-instruct": "longrope ×32 from 4,096 tokens",
    "Phi-3-vision-128k-instruct": "longrope ×32 from 4,096 tokens",
    "Gemma-3-12b-it (text)": "linear ×8",
    "Qwen2.5-VL-7B-Instruct": "contiguous sections 16 + 24 + 24",
    "Qwen3-VL-2B (text)": "interleaved sections 24 + 20 + 20",
    "phi-1": "RoPE, first 32 of 64 channels, base 10,000",
    "Moonshine-tiny": "RoPE, first 32 of 36 channels, base 10,000",
}


@pytest.mark.parametrize("name", KINDS)
def test_every_published_model_is_inspected(tmp_path, name):
    found = inspected(tmp_path, published(name))
    turnings = [group.turning for group in found.groups if group.turning]
    assert turnings
    said = [group.does for group in found.groups]
    assert any(METHODS.get(name, "RoPE, ") in words for words in said), said
    refs = MODELS[name]["ref"]
    first = refs.get("long", refs)["first"]
    assert any(
        turning.pairs[0].wavelength == pytest.approx(2 * math.pi / first, rel=1e-6)
        for turning in turnings
    )
    assert json.dumps(found.to_json(), allow_nan=False)


def test_a_target_is_a_number_of_tokens(tmp_path):
    with refused(ValueError, "`target`", 1, 0):
        inspected(tmp_path, QWEN, target=0)
    with pytest.raises(ModelError):
        inspected(tmp_path, QWEN | {"rope_theta": 0})


@pytest.mark.parametrize(
    ("encodings", "names"),
    [([ALiBi(4)] * 2, "ALiBi"), ([T5Bias(4), NoPE()], "T5Bias and NoPE")],
    ids=["one", "two"],
)
def test_a_folder_saved_by_the_adapter_says_which_encoding_is_in_it(tmp_path, encodings, names):
    """The config's RoPE would reach 512 tokens, but another encoding is applied."""
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    config = {"model_type": "llama", "max_position_embeddings": 512, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert inspect(tmp_path, 1024).verdict == "breaks"
    (tmp_path / "config.json").write_text(json.dumps(config | {"posenc": described(encodings)}))
    report = inspect(tmp_path, 1024)
    assert report.spec.notes[0].startswith(f"it was saved with {names} of posenc applied in place")
    assert report.verdict == "cannot say"
    assert report.unknown == [f"the effect of {names} at this length must be measured"]


def test_an_applied_encoding_that_no_config_can_describe_is_said(tmp_path):
    config = {"model_type": "llama", "posenc": described([lambda length: ALiBi(4)])}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (note, *_) = inspect(tmp_path).spec.notes
    assert note.startswith("it was saved with an encoding that a config cannot describe of posenc")


@pytest.mark.parametrize("name", ["", "config.json"])
def test_a_model_in_the_cache_of_the_hub_is_named_by_its_id(tmp_path, name):
    """By its documentation, the hub stores ORG/NAME in models--ORG--NAME/snapshots/HASH."""
    folder = tmp_path / "models--Qwen--Qwen3-8B" / "snapshots" / "b968826d9c46dd60"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    assert inspect(folder / name).name == "Qwen/Qwen3-8B"


@pytest.mark.parametrize("present", [1e4, 8e4, 84_200.0, 9e4, 9.6e4, 5e5])
def test_bases_to_train_on_with_are_enough_and_larger_than_the_present_one(tmp_path, present):
    """By the sum of cosines at each distance, 90,000 fails from 6,581 on, and 84,200 is
    sufficient for 8,192 tokens. If the present base is sufficient, there is no advice.
    """

    def first_negative(base):
        theta = [base ** (-j / 64) for j in range(64)]
        sums = (sum(math.cos(m * turn) for turn in theta) for m in range(8192))
        return next((m for m, similarity in enumerate(sums) if similarity < 0), None)

    config = QWEN | {"max_position_embeddings": 4096, "rope_theta": present}
    lines = [
        line for line in inspected(tmp_path, config, 8192).advice if "train further with" in line
    ]
    assert first_negative(9e4) == 6581
    assert bool(lines) == (first_negative(present) is not None)
    for line in lines:
        named = re.findall(r"base of ([\d,]+)|([\d,]+) and ([\d,]+) are sufficient", line)
        bases = [float(base.replace(",", "")) for found in named for base in found if base]
        assert len(bases) == 3
        assert all(base > present and first_negative(base) is None for base in bases)
        failing, start = re.search(r"as ([\d,]+) fails from ([\d,]+) tokens on", line).groups()
        assert first_negative(float(failing.replace(",", ""))) == int(start.replace(",", ""))
        assert min(bases) < float(failing.replace(",", "")) < 1e10


def test_no_base_is_advised_that_no_model_has(tmp_path):
    """With 16 rotated channels, no base below 10¹⁰ is sufficient for 262,144 tokens."""
    config = QWEN | {"partial_rotary_factor": 0.125, "model_type": "stablelm"}
    advice = inspected(tmp_path, config, 262_144).advice
    assert len(advice) == 2
    assert not any("train further with" in line for line in advice)


def test_a_config_its_folder_and_its_file_are_the_same_model(tmp_path):
    """Call `inspect` by its public name, as in the README."""
    values = {"model_type": "llama", "rope_theta": 500000.0, "max_position_embeddings": 8192}
    (tmp_path / "config.json").write_text(json.dumps(values))
    whole = posenc.inspect(values, target=131072)
    for model in (tmp_path, str(tmp_path), tmp_path / "config.json"):
        other = posenc.inspect(model, target=131072)
        assert (other.problems, other.groups, other.spec) == (
            whole.problems,
            whole.groups,
            whole.spec,
        )
        assert other.name == tmp_path.name
    with refused(ValueError, "`weights`"):
        posenc.inspect(values, weights=True)
