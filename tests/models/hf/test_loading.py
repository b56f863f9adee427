"""Test that an unsafe or inconsistent model is rejected in one line before it is loaded.

Folders are saved by transformers and then corrupted.
"""

import json
import os
import shutil
from types import SimpleNamespace

import pytest
import torch
import transformers
from refusals import refused
from safetensors.torch import load_file, save_file
from small_models import saved
from torch import nn

from posenc.analysis.text import parse
from posenc.commands import cli
from posenc.lab.compare import real_model
from posenc.models.files.errors import ModelError
from posenc.models.hf import loading

TEXT = parse("dogs", "the old dog chased another dog until the cat chased it away again . " * 8)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return saved("Llama", tmp_path_factory.mktemp("llama"), TEXT.words)


@pytest.fixture
def folder(sound, tmp_path):
    """Copy a tiny Llama with its tokenizer, for tests that corrupt it."""
    return shutil.copytree(sound, tmp_path / "model")


def configure(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def refusal(folder):
    """Return the error message of the folder, which must be one line."""
    with pytest.raises(ModelError) as refused:
        real_model.read(folder, TEXT)
    said = str(refused.value)
    assert "\n" not in said
    assert len(said) < 500
    return said


def test_a_model_is_what_transformers_makes_of_its_folder(sound):
    model, tokenizer, unused = loading.load(sound)
    theirs = transformers.AutoModel.from_pretrained(sound).state_dict()
    assert unused == ()
    assert {name: list(t.shape) for name, t in model.state_dict().items()} == {
        name: list(t.shape) for name, t in theirs.items()
    }
    assert all(torch.equal(t, theirs[name]) for name, t in model.state_dict().items())
    own = transformers.AutoTokenizer.from_pretrained(sound)
    assert tokenizer("the old dog")["input_ids"].tolist() == [own("the old dog")["input_ids"]]


def test_weights_of_a_head_are_left_aside_and_named(tmp_path):
    saved("Llama", tmp_path, TEXT.words)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    found = real_model.read(tmp_path, TEXT)
    assert "lm_head.weight" in found.notes[0]


def test_random_weights_are_not_presented_as_a_model(folder):
    """The weights belong to another config."""
    save_file({"some.weight": torch.zeros(200, 200)}, folder / "model.safetensors")
    said = refusal(folder)
    assert said.startswith("config.json: describes weights that are missing: embed_tokens.weight,")
    assert said.endswith(" more")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.pop("norm.weight"), "that are missing: norm.weight"),
        (lambda t: t.update(extra=torch.ones(3)), "no module for these weights: extra"),
        (
            lambda t: t.update({"norm.weight": torch.ones(5)}),
            r"model.safetensors:norm.weight: must have shape \[32\] by config.json, got \[5\]",
        ),
        (
            lambda t: t.update({"norm.weight": torch.ones(32, dtype=torch.int8)}),
            "norm.weight: must not be quantised, got 'I8', allowed: BF16",
        ),
        (
            lambda t: t.update({"norm.weight": torch.full((32,), float("nan"))}),
            "norm.weight: contains",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named(folder, change, says):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelError, match=says):
        real_model.read(folder, TEXT)


def test_weights_that_no_memory_holds_are_not_loaded(folder, monkeypatch):
    monkeypatch.setattr(loading, "memory", lambda: 2**15)
    assert refusal(folder).startswith("the weights: needs ")
    path = folder / "model.safetensors"
    shape = {"dtype": "F32", "shape": [10**9, 32], "data_offsets": [0, 128 * 10**9]}
    header = json.dumps({"embed_tokens.weight": shape}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + 128 * 10**9)  # sparse, without disk space
    configure(folder, vocab_size=10**9)
    assert "needs 119.2 GiB of memory, allowed: up to 32 KiB" in refusal(folder)


def test_shards_outside_of_the_folder_are_not_read(folder):
    names = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder.parent / "secret.safetensors")
    index = {"weight_map": dict.fromkeys(names, "../secret.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "names a file outside the folder" in refusal(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_link_out_of_the_folder_is_not_followed(folder, name):
    (folder / name).rename(folder.parent / name)
    (folder / name).symlink_to(folder.parent / name)
    assert "links to a file outside the folder" in refusal(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a FIFO")
def test_a_pipe_is_not_waited_for(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ValueError, match=r"must be a regular file|no folder with a config\.json"):
        real_model.read(folder, TEXT)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"auto_map": {"AutoModel": "evil.Model"}},
            "auto_map: must be absent. posenc never loads code",
        ),
        ({"quantization_config": {"quant_method": "fp8"}}, "never loads a quantiser"),
        ({"text_config": {"quantization_config": {"bits": 4}}}, "text_config.quantization_config"),
        ({"use_kernels": True}, "never loads kernels of a hub"),
        (
            {"attn_implementation": "evil/kernel"},
            "must not name kernels on a hub, which posenc never loads, got 'evil/kernel'",
        ),
        ({"_attn_implementation": {"": "evil/kernel"}}, "must not name kernels on a hub"),
        ({"_attn_implementation_internal": "evil/kernel:f"}, "must not name kernels on a hub"),
        ({"_experts_implementation": "evil/kernel"}, "must not name kernels on a hub"),
        ({"fusion_config": {"rms": True}}, "never loads fused modules"),
        ({"transformers_weights": "../x.bin"}, "never loads another file"),
        ({"backbone": "resnet50"}, "never loads another model"),
        ({"parts": [{"auto_map": {"AutoModel": "a.B"}}]}, "parts.0.auto_map: must be absent"),
    ],
)
def test_what_makes_transformers_act_is_refused_before_it_is_loaded(
    folder, monkeypatch, changes, says
):
    configure(folder, **changes)
    monkeypatch.setattr(loading, "_model", None)  # not even called
    monkeypatch.setattr(loading, "_tokenizer", None)
    with pytest.raises(ModelError, match=says):
        loading.load(folder)


def test_an_adapter_is_refused(folder):
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "evil/model"}')
    assert refusal(folder) == "adapter_config.json: is an adapter. Merge it into its model first"


def test_transformers_is_never_given_the_folder(folder, monkeypatch):
    """transformers must not read other files of the folder."""
    seen = []
    real = transformers.LlamaModel.from_pretrained.__func__

    def from_pretrained(cls, place, **options):
        seen.append((place, options["local_files_only"]))
        return real(cls, place, **options)

    monkeypatch.setattr(transformers.LlamaModel, "from_pretrained", classmethod(from_pretrained))
    (folder / "generation_config.json").write_text("not JSON")
    (folder / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["evil.T", 0]}}')
    (folder / "custom_generate").mkdir()
    real_model.read(folder, TEXT)
    assert seen == [(None, True)]


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "evil"},
        {"hidden_size": 33},
        {"vocab_size": 10**9},
        {"vocab_size": -1},
        {"intermediate_size": 10**12},
        {"max_position_embeddings": "many"},
        {"num_hidden_layers": 10**7},
        {"num_hidden_layers": 5},
        {"num_hidden_layers": 1},
        {"num_key_value_heads": 3},
        {"pad_token_id": 999},
        {"dtype": "float1"},
        {"dtype": {"": 3}},
        {"rms_norm_eps": "small"},
        {"get_text_config": 3},
        {"model_type": "gpt2"},
        {"model_type": "evil"},
        {"model_type": 3},
        {"model_type": "vit"},
        {"rope_parameters": {"rope_type": "evil"}},
        {"per_layer_config": {"0": 3}},
    ],
)
def test_a_config_that_fits_nothing_is_one_line(folder, changes):
    configure(folder, **changes)
    refusal(folder)


@pytest.mark.parametrize("changes", [{"num_labels": 10**9}, {"id2label": {"0": "a"}}])
def test_labels_of_a_head_cost_nothing(folder, changes):
    configure(folder, **changes)
    real_model.read(folder, TEXT)


def test_a_model_without_a_tokenizer_is_told_how_to_get_one(folder):
    (folder / "tokenizer.json").unlink()
    assert refusal(folder).startswith("model: contains no tokenizer.json, which is needed")


WORDS = {"<end>": 0} | {word: n for n, word in enumerate(dict.fromkeys(TEXT.words), start=1)}


def tokenizer(**model):
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "<end>"} | model,
        }
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "tokenizer.json: cannot be used as a tokenizer"),
        ("{}", "tokenizer.json: cannot be used as a tokenizer"),
        ("[" * 100_000, "tokenizer.json: cannot be used as a tokenizer"),
        (tokenizer(vocab={"<end>": 0}), "same token"),
        (tokenizer(vocab={"a": 0}, unk_token="b"), "cannot be used as a tokenizer"),
        (tokenizer(vocab={w: 10**6 + n for w, n in WORDS.items()}), "has token id 1,000,0"),
    ],
)
def test_a_tokenizer_that_is_none_or_of_another_model_is_one_line(folder, text, says):
    (folder / "tokenizer.json").write_text(text)
    assert says in refusal(folder)


def test_the_command_says_it_in_one_line(folder, capsys, tmp_path):
    configure(folder, hidden_size=48)
    with pytest.raises(SystemExit) as stop:
        cli.main(["report", "rope", "--model", str(folder), "--out", str(tmp_path / "r")])
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert err.startswith("error: --model: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("present", [0, 100])
def test_a_model_may_have_twice_its_weights_and_four_million(present):
    """Test the limit, and one more."""
    weights = SimpleNamespace(infos={"x": SimpleNamespace(elements=present, dtype="F32")})
    most = 2 * present + 2**22
    loading._refuse_unless_as_large(nn.Linear(most, 1, bias=False, device="meta"), weights)
    with refused(ModelError, f"{most + 1:,} weights"):
        one_more = nn.Linear(most + 1, 1, bias=False, device="meta")
        loading._refuse_unless_as_large(one_more, weights)
