"""Test that models written as by llama.cpp's converter come back with the same weights and logits,
also compared with transformers' own reader of GGUF files.
"""

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize, quantize
from refusals import refused
from safetensors import safe_open
from safetensors.torch import load_file

from posenc.commands import cli
from posenc.models.convert import convert
from posenc.models.files.errors import ModelError
from posenc.models.layouts import permutation

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rope_theta": 5000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SETTINGS = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "smollm3": {"num_hidden_layers": 4},  # of which the last has no encoding
}
PERMUTED = ("llama", "smollm3")  # whose queries and keys its converter reorders, in every layer


def model_of(kind):
    """Build a tiny model with random parameters."""
    config = transformers.CONFIG_MAPPING[kind](**SIZES | SETTINGS[kind])
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.arange(24).reshape(2, 12) * 5 % 61 + 3).logits


def as_llama_cpp_writes(kind, model, path, quantised=None, more=None, counts=None):
    """Write a GGUF file, with queries and keys reordered by `permute` of llama.cpp's converter."""
    layers = model.config.num_hidden_layers
    writer = gguf.GGUFWriter(path, kind)
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_vocab_size(64)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    if kind == "llama" and not counts:
        writer.add_rope_dimension_count(16)
    if kind == "qwen3":
        writer.add_key_length(16)
    for n, name in enumerate(("padding", "bos", "eos")):
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", n)
    for key, value in (counts or {}).items():
        writer.add_uint32(key, value)
    known = kind if kind in SETTINGS else "qwen3"
    arch = next((a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == known))
    names = gguf.get_tensor_name_map(arch, layers)
    written = {}
    for name, tensor in model.state_dict().items():
        if kind in PERMUTED and ("q_proj" in name or "k_proj" in name):
            heads = 4 if "q_proj" in name else 2
            tensor = tensor.reshape(heads, 2, 8, *tensor.shape[1:]).swapaxes(1, 2)
            tensor = tensor.reshape(heads * 16, *tensor.shape[3:])
        to = names.get_name(name, try_suffixes=(".weight", ".bias"))
        raw = tensor.float().numpy()
        if quantised and tensor.ndim == 2:
            packed = quantize(raw, quantised)
            writer.add_tensor(to, packed, raw_dtype=quantised)
            written[name] = dequantize(packed, quantised)
        else:
            writer.add_tensor(to, raw)
    for name, raw in (more or {}).items():
        writer.add_tensor(name, raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return written


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_model_comes_back_as_it_was(kind, tmp_path):
    model = model_of(kind)
    as_llama_cpp_writes(kind, model, tmp_path / "a.gguf")
    done = convert(tmp_path / "a.gguf", "half", tmp_path / "out")
    back = transformers.AutoModelForCausalLM.from_pretrained(done.out).eval()
    before, after = model.state_dict(), back.state_dict()
    assert before.keys() == after.keys()
    without = {f"model.layers.3.self_attn.{q}_proj.weight" for q in "qk"} & {*before}
    assert all(before[name].equal(after[name]) for name in before.keys() - without)
    if without:  # reordered alike, which no score shows where nothing turns
        assert torch.allclose(logits(back), logits(model), atol=1e-4)
        assert back.config.no_rope_layers == [1, 1, 1, 0]
    else:
        assert logits(back).equal(logits(model))
    assert done.was == ("interleaved" if kind in PERMUTED else "half")
    assert len(done.moved) == {"llama": 4, "smollm3": 6}.get(kind, 0)
    with safe_open(done.out / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt", "posenc.layout": "half"}


def test_it_is_as_transformers_reads_the_same_file(tmp_path):
    as_llama_cpp_writes("llama", model_of("llama"), tmp_path / "a.gguf")
    done = convert(tmp_path / "a.gguf", "half", tmp_path / "out")
    read = transformers.AutoModelForCausalLM.from_pretrained
    ours, theirs = read(done.out), read(tmp_path, gguf_file="a.gguf")
    assert all(ours.state_dict()[name].equal(t) for name, t in theirs.state_dict().items())
    for key in SIZES.keys() - {"rope_theta", "pad_token_id"}:
        expected = getattr(theirs.config, key)
        assert getattr(ours.config, key) == pytest.approx(expected, rel=1e-6), key
    assert ours.config.rope_parameters == theirs.config.rope_parameters


def test_in_the_layout_of_the_file_nothing_moves(tmp_path):
    model = model_of("llama")
    as_llama_cpp_writes("llama", model, tmp_path / "a.gguf")
    done = convert(tmp_path / "a.gguf", "interleaved", tmp_path / "out")
    assert done.moved == ()
    name = "model.layers.1.self_attn.q_proj.weight"
    order = permutation(16, 16, "interleaved")
    rows = model.state_dict()[name].unflatten(0, (4, 16))[:, order].flatten(0, 1)
    assert load_file(done.out / "model.safetensors")[name].equal(rows)
    again = convert(done.out, "half", tmp_path / "half")
    assert load_file(again.out / "model.safetensors")[name].equal(model.state_dict()[name])


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "F16", "BF16"])
def test_blocks_become_the_float32_that_they_stand_for(kind, tmp_path):
    model = model_of("qwen2")
    quantised = gguf.GGMLQuantizationType[kind]
    written = as_llama_cpp_writes("qwen2", model, tmp_path / "a.gguf", quantised)
    done = convert(tmp_path / "a.gguf", "half", tmp_path / "out")
    made = load_file(done.out / "model.safetensors")
    for name, values in written.items():
        assert made[name].float().numpy().tobytes() == values.astype(np.float32).tobytes()
    blocks = kind[0] == "Q"
    assert made["lm_head.weight"].dtype == (
        torch.float32 if blocks else getattr(torch, {"F16": "float16"}.get(kind, "bfloat16"))
    )
    assert any("are written as float32" in n for n in done.notes) == blocks
    assert "not copied: the tokenizer, which is within the GGUF file" in done.notes


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        (
            "llama",
            {"blk.0.ffn_gate_exps.weight": (2, 3)},
            "blk.0.ffn_gate_exps.weight: has no known counterpart",
        ),
        ("llama", {"rope_freqs.weight": (8,)}, r"rope_freqs.weight: "),
        ("gemma", {}, "general.architecture: cannot be converted to transformers by"),
    ],
)
def test_what_takes_more_than_renaming_is_refused(kind, more, message, tmp_path):
    model = model_of("llama")
    zeros = {name: np.zeros(shape, np.float32) for name, shape in more.items()}
    as_llama_cpp_writes(kind, model, tmp_path / "a.gguf", more=zeros)
    with pytest.raises(ModelError, match=message):
        convert(tmp_path / "a.gguf", "half", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_heads_that_turn_in_part_are_refused_where_transformers_turns_all(tmp_path):
    says = {"llama.rope.dimension_count": 8}
    as_llama_cpp_writes("llama", model_of("llama"), tmp_path / "a.gguf", counts=says)
    with refused(ModelError, 16, "LlamaForCausalLM", 8):
        convert(tmp_path / "a.gguf", "half", tmp_path / "out")


def test_the_command_says_what_it_did(tmp_path, capsys):
    as_llama_cpp_writes("llama", model_of("llama"), tmp_path / "a.gguf")
    words = [
        "convert",
        str(tmp_path / "a.gguf"),
        "--layout",
        "half",
        "--out",
        str(tmp_path / "out"),
    ]
    cli.main(words)
    out, _ = capsys.readouterr()
    assert "interleaved → half: the rows of 4 of 21 tensors are reordered" in out
    assert "the former layout was 'interleaved': as 'llama' in GGUF" in out
