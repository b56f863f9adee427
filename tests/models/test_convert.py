"""Test converted models against transformers: with the other rotation, logits are the same."""

import importlib
import json
import os
import shutil
import tracemalloc
from itertools import accumulate

import pytest
import torch
from layout_files import AT, CONFIG, LAYER, planned
from refusals import refused
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from posenc.models.convert import convert
from posenc.models.files.errors import ModelError
from posenc.models.layouts import permutation

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MLA = SIZES | {
    "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 20, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 6, "v_head_dim": 10, "first_k_dense_replace": 2, "moe_intermediate_size": 8,
    "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
}  # fmt: skip

HALF = {  # models that transformers turns in halves
    "llama": {"num_key_value_heads": 2, "attention_bias": True},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 12},
    "gemma3_text": {"num_key_value_heads": 2, "head_dim": 12},
    "olmo3": {"num_key_value_heads": 2},
    "phi3": {"num_key_value_heads": 2, "rope_parameters": {"partial_rotary_factor": 0.5}},
    "gpt_neox": {"rope_parameters": {"partial_rotary_factor": 0.5}},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon, one key": {"multi_query": True, "new_decoder_architecture": False, "bias": True},
    "falcon, a key each": {"multi_query": False, "new_decoder_architecture": False},
    "modernbert": {"cls_token_id": 1, "sep_token_id": 2},
}


def auto_of(name):
    masked = name == "modernbert"
    return transformers.AutoModelForMaskedLM if masked else transformers.AutoModelForCausalLM


def model_of(name, folder, **settings):
    """Save a tiny transformers model with random parameters, and return its logits."""
    name = name.split(",")[0]
    if "rope_parameters" in settings:
        own = {"rope_type": "default", "rope_theta": 100.0}
        settings["rope_parameters"] = own | settings["rope_parameters"]
    config = transformers.CONFIG_MAPPING[name](**{**SIZES, **settings})
    auto = (
        transformers.AutoModelForMaskedLM if "bert" in name else transformers.AutoModelForCausalLM
    )
    model = auto.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return logits(folder, auto)


def logits(folder, auto=transformers.AutoModelForCausalLM):
    model = auto.from_pretrained(folder, attn_implementation="eager").eval()
    ids = torch.arange(24).reshape(2, 12) * 5 % 61 + 3
    with torch.no_grad():
        return model(input_ids=ids).logits


def error(a, b):
    return float((a - b).abs().max() / b.std())


def turned_as_complex(q, k, cos, sin, *_, **__):
    """Rotate as in Meta's code for Llama; cos and sin are repeated for two halves."""

    def turn(x):
        pairs = cos.shape[-1] // 2
        by = torch.complex(cos[..., :pairs], sin[..., :pairs]).unsqueeze(1)
        turns, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
        z = torch.view_as_complex(turns.unflatten(-1, (pairs, 2)).contiguous())
        return torch.cat((torch.view_as_real(z * by).flatten(-2), rest), -1)

    return turn(q), turn(k)


def turned_by_halves(q, k, cos, sin):
    def turn(x):
        pairs = cos.shape[-1]
        a, b, rest = x.split((pairs, pairs, x.shape[-1] - 2 * pairs), -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)

    return turn(q), turn(k)


def tensors(folder):
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found


def same_bytes(a, b):
    return a.keys() == b.keys() and all(
        torch.equal(a[n].view(torch.uint8), b[n].view(torch.uint8)) for n in a
    )


@pytest.mark.parametrize("name", HALF)
def test_converted_weights_turned_as_meta_does_give_the_same_logits(name, tmp_path, monkeypatch):
    before = model_of(name, tmp_path / "half", **HALF[name])
    done = convert(tmp_path / "half", "interleaved", tmp_path / "woven")
    assert "transformers does not" in done.notes[-1]
    auto = auto_of(name)
    assert error(logits(done.out, auto), before) > 0.01
    folder = name.split(",")[0].removesuffix("_text")
    module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    monkeypatch.setattr(module, "apply_rotary_pos_emb", turned_as_complex)
    assert error(logits(done.out, auto), before) < 1e-4


@pytest.mark.parametrize("name", ["cohere", "glm", "gptj"])
def test_and_the_other_way_round(name, tmp_path, monkeypatch):
    settings = {
        "cohere": {"num_key_value_heads": 2, "use_qk_norm": True},
        "glm": {"num_key_value_heads": 2, "head_dim": 8, "attention_bias": True},
        "gptj": {"rotary_dim": 4},
    }[name]
    before = model_of(name, tmp_path / "woven", **settings)
    done = convert(tmp_path / "woven", "half", tmp_path / "half")
    assert error(logits(done.out), before) > 0.01
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")

    def cohere(q, k, cos, sin, *_, **__):
        return turned_by_halves(q, k, cos[..., ::2].unsqueeze(1), sin[..., ::2].unsqueeze(1))

    def glm(q, k, cos, sin, *_, **__):
        pairs = cos.shape[-1] // 2
        return turned_by_halves(q, k, *(t[..., :pairs].unsqueeze(1) for t in (cos, sin)))

    def gptj(x, sin, cos):
        return turned_by_halves(x, x, cos.unsqueeze(2), sin.unsqueeze(2))[0]

    monkeypatch.setattr(module, "apply_rotary_pos_emb", locals()[name])
    assert error(logits(done.out), before) < 1e-4


@pytest.mark.parametrize("rank", [12, None])
def test_deepseeks_config_is_changed_too_so_that_transformers_gives_the_same_logits(rank, tmp_path):
    before = model_of("deepseek_v3", tmp_path / "a", **MLA | {"q_lora_rank": rank})
    done = convert(tmp_path / "a", "half", tmp_path / "b")
    assert json.loads((done.out / "config.json").read_text())["rope_interleave"] is False
    assert any("rope_interleave is false now" in note for note in done.notes)
    assert len(done.moved) == 4
    assert error(logits(done.out), before) < 1e-4
    back = convert(done.out, "interleaved", tmp_path / "c")
    assert same_bytes(tensors(back.out), tensors(tmp_path / "a"))
    assert error(logits(back.out), before) == 0


@pytest.mark.parametrize("name", ["qwen3", "phi3"])
def test_the_way_back_gives_the_same_bytes(name, tmp_path):
    model_of(name, tmp_path / "a", **HALF[name])
    there = convert(tmp_path / "a", "interleaved", tmp_path / "b")
    back = convert(there.out, "half", tmp_path / "c")
    assert same_bytes(tensors(back.out), tensors(tmp_path / "a"))
    assert there.moved == back.moved
    changed = [n for n, t in tensors(there.out).items() if not t.equal(tensors(back.out)[n])]
    assert sorted(changed) == sorted(there.moved)
    assert "so it can load the copy" in back.notes[-1]


@pytest.fixture
def llama(tmp_path):
    """Write a folder with two shards, their index, a tokenizer, code and pickles."""
    model_of("llama", tmp_path / "model", **HALF["llama"])
    folder = tmp_path / "model"
    whole = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(whole)
    files = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, inside in files.items():
        save_file({n: whole[n].bfloat16() for n in inside}, folder / file, {"from": "us"})
    places = {n: file for file, inside in files.items() for n in inside}
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    for name in ("modeling.py", "pytorch_model.bin", "pytorch_model.bin.index.json"):
        (folder / name).write_text("{}")
    (folder / "original").mkdir()
    return folder


def test_shards_index_and_tokenizer_come_along_and_code_and_pickles_do_not(llama, tmp_path):
    seen = []
    done = convert(
        llama, "interleaved", tmp_path / "new" / "out", progress=lambda *now: seen.append(now)
    )
    copied = {file.name for file in done.out.iterdir()}
    assert copied == {
        "a.safetensors", "b.safetensors", "model.safetensors.index.json", "config.json",
        "generation_config.json", "tokenizer.json",
    }  # fmt: skip
    for name in copied - {"a.safetensors", "b.safetensors"}:
        assert (done.out / name).read_bytes() == (llama / name).read_bytes()
    left = "not copied: modeling.py, original, pytorch_model.bin, pytorch_model.bin.index.json"
    assert done.notes[-1] == left
    assert done.tensors == len(seen) == len(tensors(llama))
    assert [n for _, n, _ in seen] == list(range(1, done.tensors + 1))
    assert done.bytes == sum(file.stat().st_size for file in done.out.iterdir())
    assert len(done.moved) == 2 * 4  # weight and bias of q and k, in two layers


def test_every_file_says_its_layout_and_keeps_what_it_said(llama, tmp_path):
    done = convert(llama, "interleaved", tmp_path / "out")
    for name in ("a.safetensors", "b.safetensors"):
        with safe_open(done.out / name, "pt") as new, safe_open(llama / name, "pt") as old:
            said = {"format": "pt", "from": "us", "posenc.layout": "interleaved"}
            assert new.metadata() == said
            assert list(new.keys()) == list(old.keys())
    with refused(ModelError, "'interleaved'"):
        convert(done.out, "interleaved", tmp_path / "again")
    with refused(ModelError, "'half'"):
        convert(llama, "half", tmp_path / "again")


def test_files_in_different_layouts_are_refused(llama, tmp_path):
    done = convert(llama, "interleaved", tmp_path / "out")
    shutil.copy(llama / "a.safetensors", done.out / "a.safetensors")
    with pytest.raises(ModelError, match="must state the same pair layout"):
        convert(done.out, "half", tmp_path / "again")


def test_an_unknown_model_needs_its_layout_said(llama, tmp_path):
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps(config | {"model_type": "somebodys"}))
    with pytest.raises(ModelError, match="does not determine the layout"):
        convert(llama, "interleaved", tmp_path / "out")
    done = convert(llama, "interleaved", tmp_path / "out", from_="half")
    assert any("'somebodys' is unknown" in note for note in done.notes)


def test_what_is_said_is_believed_where_the_weights_do_not_show_it(llama, tmp_path):
    """Random queries and keys do not show a layout; Meta's own files of Llama are interleaved."""
    done = convert(llama, "half", tmp_path / "out", from_="interleaved")
    assert (done.was, done.now) == ("interleaved", "half")
    assert done.by == "stated by `--was`, although 'llama' in transformers usually has 'half'"
    for wrong in ({"to": "neox"}, {"to": "half", "from_": "gptj"}):
        with refused(ValueError, "'half'", "'interleaved'"):
            convert(llama, out=tmp_path / "again", **wrong)


def test_what_is_said_must_not_contradict_the_metadata(llama, tmp_path):
    done = convert(llama, "interleaved", tmp_path / "out")
    with refused(ModelError, "'interleaved'"):
        convert(done.out, "interleaved", tmp_path / "again", from_="half")


def test_what_is_said_must_not_contradict_a_key_of_the_config(tmp_path):
    model_of("deepseek_v3", tmp_path / "a", **MLA)
    with refused(ModelError, "'interleaved'", "`--was`", "'half'"):
        convert(tmp_path / "a", "interleaved", tmp_path / "b", from_="half")


TIED = CONFIG | {"hidden_size": 96, "num_hidden_layers": 3, "head_dim": 16}


def tied(folder, layout, config=TIED):
    """Return queries correlated with the keys of their pairs, as after training, in this layout."""
    made, g = {}, torch.Generator().manual_seed(0)
    order = permutation(16, 16, layout) if layout == "interleaved" else list(range(16))
    for n in range(3):
        k = torch.randn(2, 16, 96, generator=g)
        q = torch.randn(4, 16, 96, generator=g) + k.roll(8, 1).repeat_interleave(2, 0)
        for to, rows in (("q", q[:, order]), ("k", k[:, order]), ("v", k)):
            name = f"model.layers.{n}.self_attn.{to}_proj.weight"
            made[name] = rows.flatten(0, 1).contiguous()
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(made, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("from_", ["interleaved", None])
def test_weights_that_show_that_they_are_interleaved_are_believed(tmp_path, from_):
    """In transformers, Llama has the layout "half"."""
    model, halves = tied(tmp_path / "a", "interleaved"), tied(tmp_path / "b", "half")
    done = convert(model, "half", tmp_path / "out", from_)
    assert same_bytes(tensors(done.out), tensors(halves))
    assert done.by.startswith("measured in its weights, 'interleaved' t = ")
    assert done.by.endswith("although 'llama' in transformers usually has 'half'")


def test_weights_that_show_another_layout_than_is_said_are_refused(tmp_path):
    model = tied(tmp_path / "a", "half")
    with refused(ModelError, "'half'"):
        convert(model, "half", tmp_path / "out", from_="interleaved")
    with refused(ModelError, "'half'"):
        convert(model, "half", tmp_path / "out")


def test_an_unknown_model_whose_weights_show_its_layout_needs_nothing_said(tmp_path):
    config = TIED | {"model_type": "somebodys", "rope_theta": 1e4}
    model = tied(tmp_path / "a", "interleaved", config)
    assert convert(model, "half", tmp_path / "out").was == "interleaved"


def test_queries_that_no_memory_holds_are_refused_before_they_are_read(tmp_path):
    """A sparse file of 96 GiB needs no disk space."""
    header, size = {}, 4 * 64 * 2**27
    for n, to in enumerate("qkv"):
        name = f"model.layers.0.self_attn.{to}_proj.weight"
        offsets = [n * size, (n + 1) * size]
        header[name] = {"dtype": "F32", "shape": [64, 2**27], "data_offsets": offsets}
    text = json.dumps(header).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + 3 * size)
    config = TIED | {"num_hidden_layers": 1, "num_key_value_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with refused(ModelError, "q_proj", 32, "GiB", 4):
        convert(tmp_path, "interleaved", tmp_path / "out")


def test_weights_that_the_disk_has_no_room_for_are_refused(tmp_path, monkeypatch):
    model = tied(tmp_path / "a", "half")
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with refused(ModelError, "KiB", "1,000"):
        convert(model, "interleaved", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_config_that_contradicts_the_weights_is_refused(tmp_path):
    model_of("deepseek_v3", tmp_path / "a", **MLA)
    done = convert(tmp_path / "a", "half", tmp_path / "b")
    shutil.copy(tmp_path / "a" / "config.json", done.out / "config.json")
    with refused(ModelError, "rope_interleave", "'interleaved'"):
        convert(done.out, "interleaved", tmp_path / "c")


def test_nothing_is_overwritten_and_nothing_half_done_is_left(llama, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for out in ("full", "file", "model"):
        with pytest.raises(FileExistsError, match="must not exist"):
            convert(llama, "interleaved", tmp_path / out)

    def stop(name, done, of):
        if done == 5:
            raise KeyboardInterrupt

    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(KeyboardInterrupt):
        convert(llama, "interleaved", tmp_path / "out", progress=stop)
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "out").mkdir()
    assert convert(llama, "interleaved", tmp_path / "out").out == tmp_path / "out"


@pytest.fixture
def wide(tmp_path):
    """Write four layers with three tensors of a megabyte."""
    names = [f"layers.{i}.self_attn.{n}_proj.weight" for i in range(4) for n in "qkv"]
    save_file({name: torch.randn(512, 512) for name in names}, tmp_path / "model.safetensors")
    sizes = {"num_hidden_layers": 4, "hidden_size": 512, "num_key_value_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | sizes))
    return tmp_path


def test_one_tensor_at_a_time_is_in_memory(wide):
    tracemalloc.start()
    convert(wide, "interleaved", wide / "out")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * 2**20  # of twelve megabytes


def test_a_file_that_shrinks_meanwhile_is_refused(wide):
    cut = lambda name, done, of: os.truncate(wide / "model.safetensors", 2**21)  # noqa: E731
    with pytest.raises(ModelError, match="became shorter while it was read"):
        convert(wide, "interleaved", wide / "out", progress=cut)
    assert not (wide / "out").exists()


def test_the_order_of_a_header_need_not_be_that_of_the_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("posenc.models.convert.PIECE", 100)
    raw = {AT + name: torch.randn(shape) for name, shape in LAYER.items()}
    ends = [0, *accumulate(t.nbytes for t in raw.values())]
    header = {
        name: {"dtype": "F32", "shape": list(t.shape), "data_offsets": ends[i : i + 2]}
        for i, (name, t) in enumerate(raw.items())
    }
    text = json.dumps(dict(reversed(header.items()))).encode()
    data = b"".join(t.numpy().tobytes() for t in raw.values())
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    done = convert(tmp_path, "interleaved", tmp_path / "out")
    got, orders = load_file(done.out / "model.safetensors"), planned().orders
    assert all(got[n].equal(t[orders[n]] if n in orders else t) for n, t in raw.items())
    length = int.from_bytes((done.out / "model.safetensors").read_bytes()[:8], "little")
    assert length % 8 == 0  # so that tensors can be mapped where they lie


def test_a_layout_that_nobody_knows_is_refused(tmp_path):
    raw = {AT + name: torch.randn(shape) for name, shape in LAYER.items()}
    save_file(raw, tmp_path / "model.safetensors", {"posenc.layout": "woven"})
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with refused(ModelError, "'woven'"):
        convert(tmp_path, "interleaved", tmp_path / "out")


def test_other_formats_and_models_without_a_config_are_refused(llama, tmp_path):
    (llama / "config.json").unlink()
    with refused(ModelError, "config.json"):
        convert(llama, "interleaved", tmp_path / "out")
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "pickled" / "pytorch_model.bin").write_text("")
    with pytest.raises(ModelError, match="pickle is never loaded"):
        convert(tmp_path / "pickled", "interleaved", tmp_path / "out")
    assert not (tmp_path / "out").exists()
