"""Against the rotation itself, Meta's complex numbers and their published permutation for Llama,
and transformers: its models turned by other code give the same logits with converted weights.
"""

import importlib
import json
import os
import shutil
import tracemalloc
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from posenc import RoPE
from posenc.core.frequencies import frequencies
from posenc.models.convert import convert
from posenc.models.files.errors import ModelError
from posenc.models.layouts import permutation, plan
from posenc.models.weights.info import Info

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
GROUPED = SIZES | {"num_key_value_heads": 2}
MLA = SIZES | {
    "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 20, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 6, "v_head_dim": 10, "first_k_dense_replace": 2, "moe_intermediate_size": 8,
    "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
}  # fmt: skip

CONFIG = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LAYER = {"q_proj.weight": (32, 32), "k_proj.weight": (16, 32), "v_proj.weight": (16, 32)}
AT = "model.layers.0.self_attn."

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
    """A tiny model of transformers, every parameter random, saved; its logits."""
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
    """Llama's rotation as Meta published it; cos and sin come twice, for two halves."""

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


# One head


@pytest.mark.parametrize("trailing", [False, True])
@pytest.mark.parametrize("turned", [2, 6, 16])
@pytest.mark.parametrize(("a", "b"), [("half", "interleaved"), ("interleaved", "half")])
def test_the_other_rotation_turns_the_permuted_channels_alike(a, b, turned, trailing):
    order = permutation(16, turned, b, trailing)
    x, pos = torch.randn(1, 2, 5, 16), torch.arange(5)

    def rotated(x, layout):
        rope = RoPE(frequencies(turned), dim=16, layout=layout, trailing=trailing)
        return rope.on_queries(x, rope.prepare(pos))

    made, expected = rotated(x[..., order], b), rotated(x, a)[..., order]
    torch.testing.assert_close(made, expected, rtol=0, atol=1e-6)  # but for the last bit


@pytest.mark.parametrize("trailing", [False, True])
def test_the_two_ways_are_inverse_and_what_does_not_turn_stays(trailing):
    there, back = (permutation(10, 6, to, trailing) for to in ("interleaved", "half"))
    assert [there[i] for i in back] == list(range(10))
    still = range(4) if trailing else range(6, 10)
    assert all(there[i] == i for i in still)
    assert there != list(range(10))


def test_it_is_the_permutation_that_metas_llama_was_converted_with():
    heads, dim, width = 3, 8, 5
    w = torch.randn(heads * dim, width)  # interleaved, as Meta ships it
    published = w.view(heads, dim // 2, 2, width).transpose(1, 2).reshape(heads * dim, width)
    ours = w.unflatten(0, (heads, dim))[:, permutation(dim, dim, "half")].flatten(0, 1)
    assert torch.equal(ours, published)


@pytest.mark.parametrize("turned", [0, 3, 10])
def test_only_pairs_within_the_head_turn(turned):
    with pytest.raises(ValueError, match="`turned` must be even and from 2 to 8"):
        permutation(8, turned, "half")


# Models of transformers


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
    assert "this is for it" in back.notes[-1]


# What the folder holds


@pytest.fixture
def llama(tmp_path):
    """A folder with two shards, their index, a tokenizer, code and pickles."""
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
    left = "left behind: modeling.py, original, pytorch_model.bin, pytorch_model.bin.index.json"
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
    with pytest.raises(ModelError, match="is already in layout 'interleaved'"):
        convert(done.out, "interleaved", tmp_path / "again")
    with pytest.raises(ModelError, match="is already in layout 'half'"):
        convert(llama, "half", tmp_path / "again")


def test_files_in_different_layouts_are_refused(llama, tmp_path):
    done = convert(llama, "interleaved", tmp_path / "out")
    shutil.copy(llama / "a.safetensors", done.out / "a.safetensors")
    with pytest.raises(ModelError, match="in different layouts"):
        convert(done.out, "half", tmp_path / "again")


def test_an_unknown_model_needs_its_layout_said(llama, tmp_path):
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps(config | {"model_type": "somebodys"}))
    with pytest.raises(ModelError, match="does not say where the channels of a pair sit"):
        convert(llama, "interleaved", tmp_path / "out")
    done = convert(llama, "interleaved", tmp_path / "out", from_="half")
    assert any("'somebodys' is not known" in note for note in done.notes)


def test_what_is_said_is_believed_where_the_weights_do_not_show_it(llama, tmp_path):
    """Random queries and keys show no layout; Meta's own files of Llama are interleaved."""
    done = convert(llama, "half", tmp_path / "out", from_="interleaved")
    assert (done.was, done.now) == ("interleaved", "half")
    assert done.by == "`--was` says so, though 'llama' in transformers is usually in 'half'"
    for wrong in ({"to": "neox"}, {"to": "half", "from_": "gptj"}):
        with pytest.raises(ValueError, match="is a layout: 'half' or 'interleaved', got"):
            convert(llama, out=tmp_path / "again", **wrong)


def test_what_is_said_must_not_contradict_the_metadata(llama, tmp_path):
    done = convert(llama, "interleaved", tmp_path / "out")
    with pytest.raises(
        ModelError, match="in both layouts, 'interleaved': its metadata says so; 'ha"
    ):
        convert(done.out, "interleaved", tmp_path / "again", from_="half")


def test_what_is_said_must_not_contradict_a_key_of_the_config(tmp_path):
    model_of("deepseek_v3", tmp_path / "a", **MLA)
    with pytest.raises(ModelError, match="says 'interleaved', and `--was` says 'half'; set it r"):
        convert(tmp_path / "a", "interleaved", tmp_path / "b", from_="half")


TIED = CONFIG | {"hidden_size": 96, "num_hidden_layers": 3, "head_dim": 16}


def tied(folder, layout, config=TIED):
    """Queries tied to the keys of their pairs, as training ties them, in this layout."""
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
    """Though llama is in halves in transformers."""
    model, halves = tied(tmp_path / "a", "interleaved"), tied(tmp_path / "b", "half")
    done = convert(model, "half", tmp_path / "out", from_)
    assert same_bytes(tensors(done.out), tensors(halves))
    assert done.by.startswith("its weights speak for it ('interleaved' t = ")
    assert done.by.endswith("though 'llama' in transformers is usually in 'half'")


def test_weights_that_show_another_layout_than_is_said_are_refused(tmp_path):
    model = tied(tmp_path / "a", "half")
    with pytest.raises(
        ModelError, match=r"in both layouts, 'half': its weights speak for it .* 'inter"
    ):
        convert(model, "half", tmp_path / "out", from_="interleaved")
    with pytest.raises(ModelError, match=r"is already in layout 'half': its weights speak for it"):
        convert(model, "half", tmp_path / "out")


def test_an_unknown_model_whose_weights_show_its_layout_needs_nothing_said(tmp_path):
    config = TIED | {"model_type": "somebodys", "rope_theta": 1e4}
    model = tied(tmp_path / "a", "interleaved", config)
    assert convert(model, "half", tmp_path / "out").was == "interleaved"


def test_queries_that_no_memory_holds_are_refused_before_they_are_read(tmp_path):
    """A sparse file of 96 GiB takes no room."""
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
    with pytest.raises(
        ModelError, match=r"q_proj.weight: needs 32 GiB of memory, allowed: up to 4"
    ):
        convert(tmp_path, "interleaved", tmp_path / "out")


def test_weights_that_the_disk_has_no_room_for_are_refused(tmp_path, monkeypatch):
    model = tied(tmp_path / "a", "half")
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ModelError, match=r"needs .* KiB on the disk, allowed: up to 1,000 B"):
        convert(model, "interleaved", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_config_that_contradicts_the_weights_is_refused(tmp_path):
    model_of("deepseek_v3", tmp_path / "a", **MLA)
    done = convert(tmp_path / "a", "half", tmp_path / "b")
    shutil.copy(tmp_path / "a" / "config.json", done.out / "config.json")
    with pytest.raises(ModelError, match=r"rope_interleave: says 'interleaved', and the weights"):
        convert(done.out, "interleaved", tmp_path / "c")


def test_nothing_is_overwritten_and_nothing_half_done_is_left(llama, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for out in ("full", "file", "model"):
        with pytest.raises(FileExistsError, match="nothing is overwritten: name a new folder"):
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
    """Four layers of three tensors of a megabyte."""
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
    with pytest.raises(ModelError, match="has become shorter while it was read"):
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
    with pytest.raises(ModelError, match=r"posenc.layout: is not known, got 'woven'"):
        convert(tmp_path, "interleaved", tmp_path / "out")


def test_other_formats_and_models_without_a_config_are_refused(llama, tmp_path):
    (llama / "config.json").unlink()
    with pytest.raises(ModelError, match=r"holds no config.json, which says how its heads lie"):
        convert(llama, "interleaved", tmp_path / "out")
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "pickled" / "pytorch_model.bin").write_text("")
    with pytest.raises(ModelError, match="pickle is never loaded"):
        convert(tmp_path / "pickled", "interleaved", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Which tensors move

WHOLE = ("model.", "base_model.", "mtp.", "pool.")  # how names begin that stand elsewhere


def planned(more=(), config=(), without=(), to="interleaved", at=AT, dtype="F32"):
    """The plan for one layer of Llama with more tensors, or without some."""
    shapes = {at + n: shape for n, shape in LAYER.items() if n not in without}
    shapes |= {n if n.startswith(WHOLE) else at + n: s for n, s in dict(more).items()}
    infos = {name: Info(name, dtype, shape, Path("w")) for name, shape in shapes.items()}
    return plan(infos, CONFIG | dict(config), to)


HEAD = [0, 4, 1, 5, 2, 6, 3, 7]


def test_a_head_of_thousands_of_channels_is_looked_at_before_its_order_is_made():
    wide = {"head_dim": 2**12, "num_attention_heads": 2**16, "num_key_value_heads": 2**16}
    tracemalloc.start()
    with pytest.raises(ModelError, match="does not fit the config"):
        planned(config=wide)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()
    scales = {"q_proj.weight_scale_inv": (1, 2)}
    blocks = wide | {"quantization_config": {"weight_block_size": [2**32, 8]}}
    with pytest.raises(ModelError, match="needs 16 GiB of memory, allowed: up to 4 GiB"):
        planned(scales, blocks, without=LAYER)


def test_grouped_heads_move_one_by_one():
    assert planned().orders == {
        AT + "q_proj.weight": [8 * head + i for head in range(4) for i in HEAD],
        AT + "k_proj.weight": [8 * head + i for head in range(2) for i in HEAD],
    }


@pytest.mark.parametrize(
    ("gain", "shape", "heads"),
    [
        ("q_norm.weight", (8,), 1),
        ("k_norm.weight", (8,), 1),
        ("q_norm.weight", (32,), 4),
        ("k_norm.weight", (16,), 2),
        ("k_norm.weight", (2, 8), 2),
        ("q_layernorm.bias", (8,), 1),
        ("q_layernorm.norms.3.weight", (8,), 1),
    ],
)
def test_gains_move_as_what_they_scale(gain, shape, heads):
    order = planned({gain: shape}).orders[AT + gain]
    assert order == [8 * head + i for head in range(heads) for i in HEAD]


def test_a_gate_woven_into_the_queries_stays():
    config = {"model_type": "qwen3_next", "layer_types": ["full_attention"], "head_dim": 8}
    config["partial_rotary_factor"] = 1.0
    gated = planned({"q_proj.weight": (64, 32)}, config)
    order = gated.orders[AT + "q_proj.weight"]
    assert [i for i in order if i % 16 >= 8] == [i for i in range(64) if i % 16 >= 8]
    assert order[:16] == [*HEAD, *range(8, 16)]


@pytest.mark.parametrize("rest", [6, 0])
def test_of_deepseeks_latent_the_key_behind_it_moves(rest):
    config = {"model_type": "deepseek_v3", "kv_lora_rank": 5, "num_key_value_heads": 4}
    config |= {"qk_rope_head_dim": 8, "qk_nope_head_dim": rest, "num_nextn_predict_layers": 0}
    names = {"q_proj.weight": (4 * (rest + 8), 32), "kv_a_proj_with_mqa.weight": (13, 32)}
    names |= {"kv_a_layernorm.weight": (5,), "kv_b_proj.weight": (4 * (rest + 9), 5)}
    moved = planned(names, config, without=LAYER).orders
    assert moved[AT + "kv_a_proj_with_mqa.weight"] == [*range(5), *(5 + i for i in HEAD)]
    queries = moved.pop(AT + "q_proj.weight")
    assert queries[: rest + 8] == [*range(rest), *(rest + i for i in HEAD)]
    assert len(moved) == 1
    with pytest.raises(ModelError, match="kv_lora_rank: is missing"):
        planned(names, config | {"kv_lora_rank": None}, without=LAYER)


def test_of_an_adapter_the_side_of_the_heads_moves():
    names = {f"base_model.{AT}q_proj.{n}": s for n, s in (
        ("lora_A.weight", (2, 32)), ("lora_B.weight", (32, 2)), ("lora_magnitude_vector", (32,))
    )}  # fmt: skip
    moved = planned(names, without=LAYER).orders
    full = planned().orders[AT + "q_proj.weight"]
    assert moved == {f"base_model.{AT}q_proj.{n}": full for n in (
        "lora_B.weight", "lora_magnitude_vector"
    )}  # fmt: skip


def test_scales_of_rows_move_and_those_of_whole_blocks_stay():
    each = planned({"q_proj.weight_scale": (32, 1), "k_proj.weight_scale": (1,)}).orders
    assert each[AT + "q_proj.weight_scale"] == each[AT + "q_proj.weight"]
    assert AT + "k_proj.weight_scale" not in each
    scale = {"q_proj.weight_scale_inv": (4, 4)}
    blocks = {"quantization_config": {"weight_block_size": [8, 8]}}
    assert AT + "q_proj.weight_scale_inv" not in planned(scale, blocks).orders
    for size in ([9, 9], [5, 8]):  # a block ends within a head; a wrong number of blocks
        with pytest.raises(ModelError, match=r"q_proj.weight_scale_inv: scales blocks of rows"):
            planned(scale, {"quantization_config": {"weight_block_size": size}})


def test_layers_that_turn_nothing_are_left_alone():
    config = {"model_type": "smollm3", "num_hidden_layers": 2, "no_rope_layers": [1, 0]}
    second = {f"model.layers.1.self_attn.{n}": shape for n, shape in LAYER.items()}
    plan = planned(second, config)
    assert all(name.startswith("model.layers.0.") for name in plan.orders)
    assert "1 of 2 layers turn nothing and are as they were" in plan.notes


def test_layers_that_predict_further_tokens_move_too():
    second = {f"model.layers.1.self_attn.{n}": shape for n, shape in LAYER.items()}
    plan = planned(second, {"num_nextn_predict_layers": 1})
    assert len(plan.orders) == 4
    with pytest.raises(ModelError, match=r"layers.1.self_attn.q_proj.weight: is not in a layer"):
        planned(second)


def test_of_several_models_in_one_only_the_text_moves():
    vision = {"model.visual.blocks.0.attn.qkv.weight": (96, 32)}
    text = {"model_type": "qwen2_5_vl_text", "rope_parameters": {"mrope_section": [2, 1, 1]}}
    inner = {"model_type": "qwen2_5_vl", "text_config": CONFIG | text}
    plan = planned(vision, inner, at="model.language_model.layers.0.self_attn.")
    assert all(name.startswith("model.language_model.") for name in plan.orders)
    assert len(plan.orders) == 2
    assert "only model.language_model.layers has moved; 1 tensors of other" in plan.notes[-1]
    with pytest.raises(ModelError, match="holds layers of which the config does not tell"):
        planned(vision)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"qk_mix.weight": (32, 32)}, r"qk_mix.weight: looks like queries or keys"),
        ({"indexer.wk.weight": (8, 32)}, r"indexer.wk.weight: looks like queries or keys"),
        ({"q_proj.qweight": (4, 32)}, r"q_proj.qweight: is stored so that its rows cannot be"),
        ({"q_proj.weight.absmax": (4,)}, r"weight.absmax: is stored so that its rows"),
        ({"q_proj.weight_scale": (4, 1)}, r"weight_scale: scales blocks of rows"),
        ({"q_proj.weight": (31, 32)}, r"does not fit the config, got \[31, 32\], allowed: 32"),
        ({"k_proj.weight": (32, 32)}, r"does not fit the config.*allowed: 16 rows, 2 times 8"),
        ({"q_norm.weight": (24,)}, r"q_norm.weight: does not fit the config"),
        ({"q_norm.scale": (8,)}, r"q_norm.scale: belongs to a norm"),
        ({"qkv_proj.weight": (64, 32)}, r"fuses queries and keys in a way not known of 'llama'"),
        ({"model.layers.0.cross_attn.q_proj.weight": (32, 32)}, r"cross_attn.q_proj.*looks like"),
        ({"model.layers.0.attn.q_proj.weight": (32, 32)}, r"once each, got 'k, q, q, v'"),
        ({"pool.q_proj.weight": (32, 32)}, r"pool.q_proj.weight: looks like .* outside of the"),
        ({"mtp.layers.0.self_attn.q_proj.weight": (32, 32)}, "holds layers of which the config"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(more, message):
    with pytest.raises(ModelError, match=message):
        planned(more)


@pytest.mark.parametrize(
    ("without", "has"),
    [("q_proj", "k, v"), ("k_proj", "q, v"), ("v_proj", "k, q")],
)
def test_a_layer_without_its_queries_keys_or_values_is_refused(without, has):
    with pytest.raises(ModelError, match=rf"model.layers.0: must have .* got '{has}'"):
        planned(without=[f"{without}.weight"])


def test_half_a_byte_a_number_cannot_move():
    with pytest.raises(ModelError, match=r"k_norm.weight: does not fit"):
        planned({"k_norm.weight": (8,)}, dtype="F4")


def test_models_that_do_not_turn_have_no_layout():
    bert = {"model_type": "bert", "vocab_size": 8, "num_key_value_heads": 4}
    with pytest.raises(ModelError, match="'bert' turns no channels, so they have no layout"):
        planned(config=bert)


def test_weights_without_layers_are_refused():
    with pytest.raises(ModelError, match="holds no queries and keys of layers"):
        plan({}, CONFIG, "half")
