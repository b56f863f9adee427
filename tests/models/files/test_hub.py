"""Test hub ids with a cache in huggingface_hub's layout, without a connection."""

import json
import subprocess
import sys

import pytest
from refusals import refused

from posenc.models.files.errors import ModelError
from posenc.models.files.hub import _reachable, local


def cached(cache, name, files):
    """Write the cache entries that a download of `name` would leave."""
    repo = cache / f"models--{name.replace('/', '--')}"
    commit = "0" * 40
    (repo / "refs").mkdir(parents=True)
    (repo / "refs/main").write_text(commit)
    folder = repo / "snapshots" / commit
    folder.mkdir(parents=True)
    for file, text in files.items():
        (folder / file).write_text(text)
    return folder


def test_what_is_here_needs_no_hub(tmp_path):
    assert local(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["no/such/folder", "nothing", "../up", "a b/c", "/abs/olute"])
def test_what_is_no_id_never_asks_the_hub(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # whose import would fail
    with pytest.raises(ModelError, match="does not exist"):
        local(name)


def posenc(cache, *words):
    """Run posenc in a new process, because huggingface_hub reads its settings on import."""
    env = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache), "PATH": "", "COLUMNS": "200"}
    command = [sys.executable, "-m", "posenc", "inspect", *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.mark.slow
def test_offline_the_cache_serves(tmp_path):
    config = {"model_type": "llama", "num_hidden_layers": 3}
    cached(tmp_path, "somebody/model", {"config.json": json.dumps(config)})
    done = posenc(tmp_path, "somebody/model", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["layers"] == 3


def test_offline_and_not_in_the_cache_is_one_clear_line(tmp_path):
    done = posenc(tmp_path, "somebody/model")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: somebody/model: is not a local path, nor in the cache, and the hub is unreachable"
        " (HF_HUB_OFFLINE, or no connection)\n"
    )


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("modles/llama", "models/llama"),
        ("models/lama", "models/llama"),
        ("models/llama/config.jsn", "models/llama/config.json"),
        ("models/llama/confg.json", "models/llama/config.json"),
    ],
)
def test_a_mistyped_path_is_answered_without_the_hub(typed, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/llama").mkdir(parents=True)
    (tmp_path / "models/llama/config.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # whose import would fail
    with refused(ModelError, meant):
        local(typed)


def test_a_file_that_is_not_here_is_no_id(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match="does not exist"):
        local("model/weights.gguf")


def test_an_id_needs_an_extra_and_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with refused(ModelError, "`models`"):
        local("org/model")


def test_without_a_connection_nothing_is_tried_again(monkeypatch):
    """A closed port of this machine refuses at once."""
    monkeypatch.setattr("posenc.models.files.hub.getproxies", dict)
    assert not _reachable("http://127.0.0.1:9")
    monkeypatch.setattr("posenc.models.files.hub.getproxies", lambda: {"https": "proxy"})
    assert _reachable("http://127.0.0.1:9")
