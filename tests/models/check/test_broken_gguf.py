"""Test GGUF files that lack parts of a model which the package gguf writes."""

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from trained_models import LETTERS, text, trained
from transformers import PreTrainedModel

from posenc.models.check.verdict import check
from posenc.models.config.source import Source
from posenc.models.files.errors import Broken
from posenc.models.hf import loading
from posenc.models.hf.loading import load_gguf

TEXT = text(8_000, seed=1)
NAMES = {  # of transformers -> of llama.cpp
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
SIZES = {"context_length": 64, "embedding_length": 32, "block_count": 1}
SIZES |= {"feed_forward_length": 32, "vocab_size": len(LETTERS) + 2}
SIZES |= {"attention.head_count": 2, "attention.head_count_kv": 2}
SIZES |= {"attention.key_length": 16, "attention.value_length": 16}


@pytest.fixture(scope="module")
def tensors(tmp_path_factory):
    folder = trained("Llama", tmp_path_factory.mktemp("trained") / "llama")
    named = {}
    for name, values in load_file(folder / "model.safetensors").items():
        module, leaf = name.removeprefix("model.layers.0.").rsplit(".", 1)
        at = "blk.0." if name.startswith("model.layers") else ""
        named[f"{at}{NAMES[module]}.{leaf}"] = values.numpy()
    for name in ("blk.0.attn_q.weight", "blk.0.attn_k.weight"):  # 2 heads of 2 halves of 8
        named[name] = named[name].reshape(2, 2, 8, 32).swapaxes(1, 2).reshape(32, 32)
    return named


def written(path, tensors, **sizes):
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (SIZES | sizes).items():
        writer.add_uint32(f"llama.{key}", value)
    writer.add_float32("llama.rope.freq_base", 10_000.0)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<pad>", "<s>", *LETTERS])
    writer.add_token_types([3, 3, *[1] * len(LETTERS)])
    writer.add_token_scores([0.0] * (len(LETTERS) + 2))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(1)
    for name, values in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_whole_file_has_no_fault(tensors, tmp_path):
    checked = check(written(tmp_path / "m.gguf", tensors), TEXT)
    assert (checked.verdict, checked.exit_code) == ("no fault found", 0)
    assert len(checked.trials) > 8


@pytest.mark.parametrize("lacking", ["blk.0.attn_k.weight", "blk.0.ffn_down.weight"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_missing_tensor_is_named_whatever_the_seed(tensors, tmp_path, capsys, lacking, seed):
    """The tensor was once filled with random numbers, and the verdict changed with the seed."""
    torch.manual_seed(seed)
    rest = {name: values for name, values in tensors.items() if name != lacking}
    checked = check(written(tmp_path / "m.gguf", rest), TEXT)
    assert checked.trials == ()
    (finding,) = [one for one in checked.findings if one.level == "error"]
    assert finding.rule.name == "broken-file"
    module = next(long for long, short in NAMES.items() if short == lacking.split(".")[2])
    assert module in finding.message
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("part", ["ffn_up", "ffn_down"])
def test_a_tensor_whose_shape_contradicts_the_metadata_is_a_fault(tensors, tmp_path, part):
    name = f"blk.0.{part}.weight"
    half = tensors | {name: tensors[name][:16]}
    checked = check(written(tmp_path / "m.gguf", half), TEXT)
    assert (checked.verdict, checked.exit_code, checked.trials) == ("fault", 1, ())
    (finding,) = [one for one in checked.findings if one.level == "error"]
    assert finding.rule.name == "broken-file"
    assert name in finding.message
    assert "[16, 32]" in finding.message


def test_a_tensor_of_another_shape_of_attention_leaves_it_open(tensors, tmp_path):
    """transformers may use another shape, as for Qwen3 with heads of other sizes than 128."""
    half = tensors | {"blk.0.attn_q.weight": tensors["blk.0.attn_q.weight"][:16]}
    checked = check(written(tmp_path / "m.gguf", half), TEXT)
    assert (checked.verdict, checked.trials) == ("cannot say", ())
    assert "q_proj" in checked.unknown[-1]


@pytest.mark.parametrize(
    "sizes",
    [
        {"vocab_size": 2**17, "embedding_length": 2**12},
        {"block_count": 9_999},
        {"feed_forward_length": 2**30},
    ],
)
def test_sizes_that_no_tensor_fills_are_refused_before_memory_is_asked_for(
    tmp_path, monkeypatch, sizes
):
    """A header of a few hundred bytes may state gigabytes of numbers."""
    path = written(tmp_path / "m.gguf", {"token_embd.weight": np.zeros((14, 32), "f4")}, **sizes)
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", pytest.fail)
    with pytest.raises(Broken):
        load_gguf(Source(path))


def test_a_file_that_is_cut_off_is_refused_before_it_is_opened(tensors, tmp_path, monkeypatch):
    path = written(tmp_path / "m.gguf", tensors)
    whole = path.read_bytes()
    monkeypatch.setattr(loading, "_empty", pytest.fail)
    path.write_bytes(whole[:-400])
    with pytest.raises(Broken, match="cut off"):
        load_gguf(Source(path))


def test_a_table_of_a_terabyte_that_the_file_does_not_hold_is_refused(tmp_path, monkeypatch):
    header = written(tmp_path / "m.gguf", {"token_embd.weight": np.zeros((7, 5), "f4")})
    raw = header.read_bytes()
    sizes = np.array([5, 7], "<u8").tobytes()
    assert raw.count(sizes) == 1
    header.write_bytes(raw.replace(sizes, np.array([2**19, 2**19], "<u8").tobytes()))
    monkeypatch.setattr(loading, "_empty", pytest.fail)
    with pytest.raises(Broken, match="cut off"):
        load_gguf(Source(header))
