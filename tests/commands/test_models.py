"""The commands on models, as a person types them: what they print and write, the exit code."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from published import published
from safetensors.torch import load_file, save_file
from small_models import saved
from trained_models import slowed, text

from posenc.models import recipes

LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
}


@pytest.fixture
def folder(tmp_path):
    """A tiny Llama, with weights."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(LLAMA))
    tensors = {"model.embed_tokens.weight": torch.randn(10, 32)}
    for n in range(2):
        for name, rows in {"q": 32, "k": 16, "v": 16, "o": 32}.items():
            tensors[f"model.layers.{n}.self_attn.{name}_proj.weight"] = torch.randn(rows, 32)
    save_file(tensors, path / "model.safetensors")
    return path


def test_inspects_a_folder_or_a_file(posenc, folder):
    code, out, err = posenc("inspect", folder)
    assert (code, err) == (0, "")
    assert "model (llama) 2 layers, 4 heads in 2 groups, 2,048 tokens" in out
    assert "layers 0–1: RoPE, 8 channels, base 10,000" in out
    assert posenc("inspect", folder / "config.json")[1] == out


def test_inspects_as_json(posenc, folder):
    _, out, _ = posenc("inspect", folder, "--json", "--target", 4096)
    told = json.loads(out)
    assert told["context"] == 2048
    assert told["problems"]
    assert told["alike"][0]["turning"]["rotary"]["base"] == 10000.0


def test_says_what_would_break_and_what_to_do(posenc, folder):
    _, out, _ = posenc("inspect", folder, "--target", 8192)
    assert "This breaks at 8,192 tokens:" in out
    assert f"→ posenc extend {folder} --to 8192 --method yarn" in " ".join(out.split())
    _, out, _ = posenc("inspect", folder, "--target", 2048)
    assert "No fault is known at 2,048 tokens; read the notes" in " ".join(out.split())


CONFIGS = {
    "flat": LLAMA,
    "stretched": LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "of version 5": {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "nested": {"model_type": "llava", "text_config": LLAMA},
    "by type": {"model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 512},
    "that heeds no key": {"model_type": "gptj", "n_layer": 2},
}


def done(line, folder):
    """Run a line of advice in a shell, whose `posenc` is that of this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True
    )


def advised(posenc, path, target):
    """The lines of advice that are commands, as they are printed."""
    _, out, _ = posenc("inspect", path, "--target", target)
    lines = [line.removeprefix("  → ") for line in out.splitlines() if line.startswith("  → ")]
    return [line for line in lines if "posenc " in line]


@pytest.mark.parametrize("kind", ["folder", "config", "link"])
@pytest.mark.parametrize("name", ["two  words", 'it\'s "quoted" $HOME `x`; b &', "-n"])
def test_what_it_advises_can_be_done_as_it_stands(posenc, tmp_path, monkeypatch, kind, name):
    """By a shell, from where `inspect` was called."""
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    config = Path(name, "config.json")
    config.write_text(json.dumps(LLAMA))
    if kind == "link":
        config.rename(tmp_path / "blob")
        config.symlink_to(tmp_path / "blob")
    path = f"./{name}" if kind == "folder" else f"./{name}/config.json"
    lines = advised(posenc, path, 8192)
    assert len(lines) == 2
    ran = done(lines[0], tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "the old config is kept as config.original.json" in ran.stdout
    longer = tmp_path / "longer" if kind == "link" else path
    _, out, _ = posenc("inspect", longer, "--target", 8192)
    assert "No fault is known at 8,192 tokens" in " ".join(out.split())


@pytest.mark.parametrize("kind", CONFIGS)
def test_each_command_that_it_advises_is_taken(posenc, tmp_path, kind):
    """Covers every spelling of `extend`; a class that ignores the key gets no advice."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[kind]))
    lines = advised(posenc, tmp_path, 1 << 20)
    assert bool(lines) == (kind != "that heeds no key")
    for line in lines:
        (tmp_path / "config.json").write_text(json.dumps(CONFIGS[kind]))
        ran = done(line, tmp_path)
        assert (ran.returncode, ran.stderr) == (0, "")


def test_of_a_gguf_it_names_the_options_of_llama_cpp(posenc, tmp_path):
    """`extend` writes configs, and there is none to write."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    sizes = {"context_length": 8192, "embedding_length": 32, "block_count": 2}
    for key, value in (sizes | {"attention.head_count": 4}).items():
        writer.add_uint32(f"llama.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert advised(posenc, tmp_path / "m.gguf", 32768) == []
    _, out, _ = posenc("inspect", tmp_path / "m.gguf", "--target", 32768)
    flags = "-c 32768 --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 8192"
    assert f"→ llama.cpp's options are {flags}\n" in out


def test_writes_a_page_and_never_over_anything_else(posenc, folder, tmp_path):
    code, out, _ = posenc("inspect", folder, "--out", tmp_path / "page")
    assert code == 0
    assert "index.html" in out
    html = (tmp_path / "page" / "index.html").read_text()
    assert "default-src 'none'" in html
    held = json.loads((tmp_path / "page" / "results.json").read_text())
    told = json.loads(posenc("inspect", folder, "--json")[1])
    assert held.pop("provenance")["command"].startswith("posenc inspect ")
    assert told.pop("provenance")["command"].endswith(" --json")
    assert held == told | {"figures": []}
    assert posenc("inspect", folder, "--out", tmp_path / "page")[0] == 0  # its own page it replaces
    code, _, err = posenc("inspect", folder, "--out", folder)
    assert code == 2
    assert "config.json" in err
    assert json.loads((folder / "config.json").read_text()) == LLAMA


def test_the_names_of_models_are_escaped_on_page_and_terminal(posenc, folder, tmp_path):
    evil = "<img src=x onerror=alert(1)>\x1b[31m\u202e"
    (folder / "config.json").write_text(json.dumps(LLAMA | {"model_type": evil}))
    code, out, _ = posenc("inspect", folder, "--out", tmp_path / "page")
    assert code == 0
    assert "\x1b" not in out
    assert "\u202e" not in out
    html = (tmp_path / "page" / "index.html").read_text()
    assert "<img src=x" not in html
    assert "&lt;img src=x" in html


def test_extends_and_says_what_changed(posenc, folder):
    code, out, _ = posenc("extend", folder, "--to", 4096, "--method", "linear", "--json")
    assert code == 0
    assert [change["key"] for change in json.loads(out)["changes"]] == [
        "max_position_embeddings",
        "rope_scaling",
    ]
    code, _, err = posenc("extend", folder, "--to", 4096, "--method", "linear")
    assert code == 2
    assert "`to` must exceed the context of 4096 tokens" in err
    code, _, err = posenc("extend", folder, "--to", 9999, "--method", "yarm")
    assert code == 2
    assert "must be one of linear, ntk, dynamic, yarn, llama3" in err


def test_extends_by_a_factor_of_what_it_was_trained_on(posenc, folder):
    words = ("--method", "yarn", "--factor", "4", "--trained", "1024", "--json")
    changes = json.loads(posenc("extend", folder, *words)[1])["changes"]
    assert [change["after"] for change in changes] == [
        4096,
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    ]
    code, _, err = posenc("extend", folder, "--method", "yarn", "--factor", "1e308")
    assert (code, err.count("\n")) == (2, 1)
    assert "above 1 and at most" in err


def test_a_copy_is_extended_and_the_model_stays(posenc, folder, tmp_path):
    """The files of both folders, byte by byte; a copy within a folder of links holds the files."""
    before = {one.name: one.read_bytes() for one in folder.iterdir()}
    asked = ("extend", folder, "--to", "4k", "--method", "linear", "--out", tmp_path / "copy")
    code, out, _ = posenc(*asked)
    assert (code, f"kept as {folder}/config.json" in out) == (0, True)
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == before
    copied = {one.name: one.read_bytes() for one in (tmp_path / "copy").iterdir()}
    assert copied.keys() == before.keys()
    assert [name for name in before if copied[name] != before[name]] == ["config.json"]
    assert json.loads(copied["config.json"])["max_position_embeddings"] == 4096
    # Nothing is overwritten, be it another model or the model itself
    for out in (tmp_path / "copy", folder, folder / "inside"):
        code, _, err = posenc(*asked[:-1], out)
        assert (code, err.count("\n")) == (2, 1)
        assert str(out) in err
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == before
    code, _, err = posenc("extend", folder / "config.json", *asked[2:-1], tmp_path / "other")
    assert (code, "must be a model folder" in err) == (2, True)


def test_a_file_outside_of_the_folder_is_not_copied(posenc, folder, tmp_path):
    """A link in a folder of somebody else leads where its maker wants."""
    (tmp_path / "secret").write_text("mine")
    (folder / "notes.txt").symlink_to(tmp_path / "secret")
    code, _, err = posenc("extend", folder, "--to=4k", "--method=linear", "--out=copy")
    assert (code, "links to a file outside the folder" in err) == (2, True)
    assert not list(tmp_path.glob("*copy*"))


@pytest.mark.parametrize(
    ("to", "tokens"), [("128k", 131_072), ("1M", 1_048_576), ("0.5m", 524_288), ("6K", 6_144)]
)
def test_a_length_may_be_in_units_of_1024_tokens(posenc, folder, to, tokens):
    code, out, _ = posenc("extend", folder, "--to", to, "--method", "linear", "--json")
    assert (code, json.loads(out)["changes"][0]["after"]) == (0, tokens)
    assert f"at {tokens:,} tokens" in posenc("inspect", folder, "--target", to)[1]


def test_converts_there_and_back(posenc, folder, tmp_path):
    code, out, _ = posenc("convert", folder, "--layout", "interleaved", "--out", tmp_path / "other")
    assert code == 0
    assert "half → interleaved: the rows of 4 of 9 tensors are reordered" in out
    code, _, _ = posenc("convert", tmp_path / "other", "--layout", "half", "--out", tmp_path / "b")
    assert code == 0
    first, last = (
        load_file(folder / "model.safetensors"),
        load_file(tmp_path / "b/model.safetensors"),
    )
    assert all(torch.equal(first[name], last[name]) for name in first)


def test_converting_overwrites_nothing(posenc, folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("my own")
    code, _, err = posenc("convert", folder, "--layout", "interleaved", "--out", tmp_path / "mine")
    assert code == 2
    assert "must not exist" in err
    code, _, err = posenc("convert", folder, "--layout", "half", "--out", tmp_path / "new")
    assert code == 2
    assert "already in layout 'half'" in err
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's chromium")
@pytest.mark.slow
def test_the_page_draws_itself_without_errors(posenc, folder, tmp_path):
    """In Chromium, with the network blocked by the page itself."""
    posenc("inspect", folder, "--out", tmp_path / "page", "--target", 8192)
    done = subprocess.run(
        [
            "chromium",
            *("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
            *("--disable-sync", f"--user-data-dir={tmp_path / 'profile'}"),
            *("--virtual-time-budget=10000", "--dump-dom"),
            f"file://{tmp_path / 'page' / 'index.html'}",
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert "CONSOLE" not in done.stderr
    assert '<svg class="plot"' in done.stdout
    assert "wavelength, tokens" in done.stdout


def test_a_larger_base_and_the_recipe_of_a_family(posenc, tmp_path):
    config = tmp_path / "config.json"
    qwen = LLAMA | {"model_type": "qwen3", "head_dim": 8, "max_position_embeddings": 40960}
    config.write_text(json.dumps(qwen))
    code, out, _ = posenc("extend", config, "--to", 131072, "--method", "yarn")
    assert code == 0
    assert '"factor": 4.0, "original_max_position_embeddings": 32768' in out
    assert "note: its published recipe states 32,768 trained tokens" in out
    assert "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 32768" in out
    config.write_text(json.dumps(LLAMA))
    code, out, _ = posenc("extend", config, "--to", 8192, "--method", "base", "--base", 500000)
    assert code == 0
    assert "rope_theta: 10000.0 → 500000.0" in out
    code, _, err = posenc("extend", config, "--to", 16384, "--method", "yarn", "--base", 1e6)
    assert code == 2
    assert "`base` must be None with method yarn, got 1,000,000" in err
    code, _, err = posenc("extend", config, "--to", 16384, "--method", "base", "--base", 1e3)
    assert code == 2
    assert "must be above the present base 500,000, got 1,000" in err


def test_ways_are_tried_and_the_best_is_written(posenc, tmp_path):
    short = slowed("Llama", tmp_path, 2.0, max_position_embeddings=32)
    (tmp_path / "a.txt").write_text(text(4_000, seed=1))
    asked = ("extend", short, "--to", 64, "--prove", "--text", "a.txt", "--out", "page", "--json")
    code, out, _ = posenc(*asked)
    told = json.loads(out)
    assert "linear reads 64 tokens best" in (tmp_path / "page/index.html").read_text()
    assert (code, told["proof"]["chosen"]) == (0, "linear")
    assert json.loads((short / "config.json").read_text())["max_position_embeddings"] == 64
    code, out, _ = posenc("extend", tmp_path / "trained", "--to", 256, "--prove", "--text", "a.txt")
    assert code == 1
    assert "No method helps: beyond" in out
    for words, says in (
        (("--prove",), "`--prove` needs `--to`"),
        (("--to", 256), "`--method` or `--prove` must be given"),
        (("--to", 256, "--method", "yarn", "--part", "b"), "needs `--method table`"),
        (("--to", 256, "--method", "yarn", "--precision", "bfloat16"), "need `--prove`"),
    ):
        code, _, err = posenc("extend", tmp_path / "trained", *words)
        assert (code, says in err) == (2, True)


def test_pairs_that_were_searched_for_are_written_and_read_again(posenc, tmp_path):
    model = slowed("Llama", tmp_path, 2.0, max_position_embeddings=32)
    (tmp_path / "a.txt").write_text(text(4_000, seed=1))
    asked = ("extend", model, "--to", 48, "--prove", "--text", "a.txt", "--precision", "bfloat16")
    code, out, _ = posenc(*asked)
    assert (code, "chosen on other excerpts: pairs, searched" in out) == (0, True)
    assert "read whole, bfloat16" in out
    assert "llama.cpp: has no option for longrope" in out
    code, out, _ = posenc("inspect", model, "--json")
    assert (code, json.loads(out)["context"]) == (0, 48)


def test_a_table_is_made_longer(posenc, tmp_path):
    """A copy is written: `tests/models/test_resize.py` holds its rows against transformers'."""
    saved("Bert", tmp_path / "bert", ["a"])
    asked = ("extend", "bert", "--method", "table", "--to", 128)
    code, out, _ = posenc(*asked, "--out", "longer")
    assert code == 0
    assert "embeddings.position_embeddings.weight: 64 → 128 rows" in out
    assert "max_position_embeddings: 128" in out
    told = json.loads(posenc("inspect", "longer", "--json")[1])
    assert told["context"] == 128
    assert json.loads(posenc(*asked, "--out", "again", "--json")[1])["after"] == 128
    code, _, err = posenc(*asked)
    assert (code, "needs `--to` and `--out`" in err) == (2, True)


def test_qwen3_comes_from_its_config_to_131072_tokens(posenc, tmp_path):
    """The commands of docs/models.md that ask a config alone, on Qwen3's as it is published."""
    (tmp_path / "q").mkdir()
    (tmp_path / "q/config.json").write_text(json.dumps(published("Qwen3-8B")))
    assert posenc("check", "q")[0] == 0
    assert "23 of 64 pairs" in posenc("inspect", "q", "--target", 131072)[1]
    code, out, _ = posenc("extend", "q", "--to", 131072, "--method", "yarn")
    assert code == 0
    settings = json.loads((tmp_path / "q/config.json").read_text())["rope_scaling"]
    assert (settings["factor"], settings["original_max_position_embeddings"]) == (4.0, 32768)
    for line in (
        "serve the folder with the new config:\n  vLLM: vllm serve q --max-model-len 131072",
        'vLLM: vllm serve q --hf-overrides \'{"rope_theta": 1000000.0, "rope_scaling": {',
        "SGLang: python -m sglang.launch_server --model-path q --json-model-override-args '{",
        "llama.cpp: llama-server -m MODEL.gguf -c 131072 --rope-scaling yarn --rope-scale 4"
        " --yarn-orig-ctx 32768",
        "MLX: mlx_lm.load('q', model_config=json.loads('{",
    ):
        assert line in out
    _, out, _ = posenc("inspect", "q", "--target", 131072)
    assert "No fault is known at 131,072 tokens" in " ".join(out.split())


def test_a_qwen3_is_proved_from_the_length_of_its_makers(posenc, tmp_path, monkeypatch):
    """The config has more than the trained length; longer texts begin at the trained one."""
    small = replace(recipes.recipes()[0], model_types=("qwen3",), context=80, trained=64)
    monkeypatch.setattr(recipes, "recipes", lambda: (small,))
    model = slowed("Qwen3", tmp_path, 4.0, max_position_embeddings=80)
    (tmp_path / "a.txt").write_text(text(6_000, seed=1))
    asked = ("extend", model, "--to", 256, "--prove", "--text", "a.txt", "--json")
    code, out, _ = posenc(*asked)
    told = json.loads(out)["proof"]
    assert (code, told["trained"], told["chosen"]) == (0, 64, "pairs, searched")
    far = {way["name"]: way["far"] for way in told["ways"]}
    assert far["pairs, searched"] < far["linear"] < far["yarn"]
    after = json.loads((model / "config.json").read_text())
    assert (after["rope_parameters"]["factor"], after["max_position_embeddings"]) == (4.0, 256)
