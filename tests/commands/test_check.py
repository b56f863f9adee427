"""The command `check` and `inspect` of two, as a person types them: output and exit code."""

import errno
import json
import os

import pytest

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(LLAMA))
    return path


def write(folder, **keys):
    (folder / "config.json").write_text(json.dumps(LLAMA | keys, indent=2))
    return folder


def test_no_fault_is_0_a_fault_is_1_and_what_cannot_be_said_is_3(posenc, folder):
    code, out, err = posenc("check", folder)
    assert (code, err) == (0, "")
    assert "model: no fault found" in out
    scaling = {"type": "linear", "factr": 2.0}
    code, out, _ = posenc("check", write(folder, rope_scaling=scaling))
    assert code == 1
    assert "✗ unknown-key" in out
    assert "as in https://github.com/lablup/mlxcel/issues/1355" in out
    code, out, _ = posenc("check", write(folder, my_rope_trick=True))
    assert code == 3
    assert "model: cannot say" in out


def test_says_so_as_json_and_as_sarif(posenc, folder, tmp_path):
    write(folder, rope_theta=0)
    code, out, _ = posenc("check", folder, "--json", "--sarif", tmp_path / "a.sarif")
    told = json.loads(out)
    assert (code, told["verdict"]) == (1, "fault")
    assert told["findings"][0]["rule"] == "impossible-value"
    (run,) = json.loads((tmp_path / "a.sarif").read_text())["runs"]
    assert run["results"][0]["ruleId"] == "impossible-value"
    code, _, err = posenc("check", folder, "--sarif", tmp_path / "a.sarif")
    assert code == 2
    assert "nothing is overwritten: name a new file" in err


def test_compares_with_another_file(posenc, folder, tmp_path):
    other = tmp_path / "other.json"
    other.write_text(json.dumps(LLAMA | {"rope_theta": 500000.0}))
    code, out, _ = posenc("check", folder, "--against", other)
    assert code == 1
    assert "files-differ" in out


def test_a_text_that_is_not_there_is_a_usage_error(posenc, folder):
    code, _, err = posenc("check", folder, "--text", "none.txt")
    assert code == 2
    assert "there is no file none.txt" in err


def test_inspect_of_two_says_in_what_they_differ(posenc, folder, tmp_path):
    other = tmp_path / "other.json"
    other.write_text(json.dumps(LLAMA))
    same = " ".join(posenc("inspect", folder, other)[1].split())  # lines break after long paths
    assert "say the same about positions" in same
    other.write_text(json.dumps(LLAMA | {"rope_theta": 500000.0}))
    code, out, _ = posenc("inspect", folder, other)
    assert code == 0
    assert "layers 0–1: frequencies: RoPE, 16 channels, base 10,000 ≠ RoPE" in out
    told = json.loads(posenc("inspect", folder, other, "--json")[1])
    assert told["differences"][0]["layers"] == [0, 1]


def test_a_dangling_link_is_not_followed(posenc, folder, tmp_path):
    link = tmp_path / "a.sarif"
    link.symlink_to(tmp_path / "elsewhere")
    code, _, err = posenc("check", folder, "--sarif", link)
    assert code == 2
    assert "nothing is overwritten" in err
    assert not (tmp_path / "elsewhere").exists()


def test_a_full_disk_leaves_no_file_behind(posenc, folder, tmp_path, monkeypatch):
    """The disk fills up while the document is written."""

    def full(document, file, **options):
        file.write("{")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    to = tmp_path / "faults.sarif"
    monkeypatch.setattr("json.dump", full)
    code, _, err = posenc("check", folder, "--sarif", to)
    assert code not in (0, 3)
    assert "faults.sarif" in err
    assert "No space left" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    monkeypatch.undo()
    assert posenc("check", folder, "--sarif", to)[0] == 0
    assert json.loads(to.read_text())["version"] == "2.1.0"
