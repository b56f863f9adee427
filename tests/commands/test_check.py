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
    assert "`--sarif` must be a new file" in err


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
    assert "same positional settings" in same
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
    assert "`--sarif` must be a new file" in err
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


def test_a_config_that_is_no_json_is_a_fault_and_a_missing_file_is_not(posenc, folder):
    (folder / "config.json").write_text('{"model_type": "llama", "rope_theta": NaN}')
    code, out, _ = posenc("check", folder, "--json")
    told = json.loads(out)
    assert (code, [found["rule"] for found in told["findings"]]) == (1, ["broken-file"])
    assert "NaN" in told["findings"][0]["message"]
    assert posenc("check", folder / "none.json")[0] == 2


def test_strict_counts_warnings_as_faults(posenc, folder):
    write(folder, rope_scaling={"type": "linear", "factor": 1.0})
    assert posenc("check", folder)[0] == 0
    code, out, _ = posenc("check", folder, "--strict", "--json")
    assert (code, json.loads(out)["verdict"], json.loads(out)["exit_code"]) == (1, "fault", 1)


def test_a_rule_can_be_switched_off_by_its_name(posenc, folder, tmp_path):
    write(folder, rope_scaling={"type": "linear", "factor": 1.0}, max_position_embeddings=2**21)
    code, out, _ = posenc("check", folder, "--json")
    assert {found["rule"] for found in json.loads(out)["findings"]} == {
        "factor-of-1",
        "base-too-small",
    }
    options = ("--strict", "--ignore", "factor-of-1", "--ignore", "base-too-small")
    code, out, _ = posenc("check", folder, *options, "--json", "--sarif", tmp_path / "a.sarif")
    assert (code, json.loads(out)["findings"]) == (0, [])
    assert json.loads(out)["ignored"] == ["factor-of-1", "base-too-small"]
    (run,) = json.loads((tmp_path / "a.sarif").read_text())["runs"]
    assert run["results"] == []
    assert run["properties"]["ignored"] == ["factor-of-1", "base-too-small"]
    code, _, err = posenc("check", folder, "--ignore", "factor-of-2")
    assert code == 2
    assert "Did you mean factor-of-1?" in err


def test_an_ignored_fault_that_stops_the_check_leaves_the_answer_open(posenc, folder):
    """Otherwise a file that nobody could read would be called free of faults."""
    write(folder, rope_theta=0)
    code, out, _ = posenc("check", folder, "--ignore", "impossible-value", "--json")
    assert (code, json.loads(out)["findings"]) == (3, [])
    assert "rope_theta" in json.loads(out)["unknown"][0]


def test_no_fault_found_states_what_could_not_be_found(posenc, folder, tmp_path):
    _, out, _ = posenc("check", folder, "--json", "--sarif", tmp_path / "a.sarif")
    (what,) = json.loads(out)["undetectable"]
    for kind in ("base", "share of channels", "factor", "window", "layout", "softmax scale"):
        assert kind in what
    (run,) = json.loads((tmp_path / "a.sarif").read_text())["runs"]
    assert run["properties"]["undetectable"] == [what]
    assert "cannot be found by rules alone" in posenc("check", folder)[1]


@pytest.mark.parametrize("error", [RuntimeError("sizes do not fit"), OSError(5, "Input/output")])
def test_a_check_that_fails_itself_has_a_code_of_its_own(posenc, folder, monkeypatch, error):
    """Neither that of a fault, nor that of a wrong option, nor that of "cannot say"."""

    def fails(path):
        raise error

    monkeypatch.setattr("posenc.models.check.verdict.faults.faults", fails)
    code, out, err = posenc("check", folder)
    assert (code, out) == (70, "")
    assert len(err.splitlines()) == 1
    assert str(error.args[-1]) in err
    assert "Traceback" not in err


def test_sarif_that_cannot_be_written_is_no_fault_of_the_model(posenc, folder, tmp_path):
    code, _, err = posenc("check", folder, "--sarif", tmp_path / "none" / "a.sarif")
    assert code == 70
    assert "a.sarif" in err
