"""Against a cache laid out as huggingface_hub lays it out, without any connection."""

import json
import subprocess
import sys

import pytest

from posenc.models.files.errors import ModelError
from posenc.models.files.hub import local


def cached(cache, name, files):
    """Write what a download of `name` would have left."""
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
    """Run it in a Python of its own: huggingface_hub reads its settings when it is imported."""
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
        "error: somebody/model: is no path here, and neither in the cache nor could the hub be"
        " asked (HF_HUB_OFFLINE, or no connection)\n"
    )
