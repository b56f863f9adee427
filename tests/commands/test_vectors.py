"""The command `vectors`: what it writes and prints, and its exit codes."""

import json

import pytest

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 5e5}
RIGHT = """
import torch
def apply(q, k, positions):
    d = q.shape[-1]
    a = positions.double()[:, None, :, None] * BASE ** (-torch.arange(0, d, 2).double() / d)
    def turned(x):
        u, v = x.chunk(2, -1)
        return torch.cat([u * a.cos() - v * a.sin(), v * a.cos() + u * a.sin()], -1)
    return turned(q), turned(k)
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "right.py").write_text(RIGHT.replace("BASE", "500000.0"))
    (tmp_path / "wrong.py").write_text(RIGHT.replace("BASE", "10000.0"))


def test_an_implementation_is_held_against_a_config(posenc, mine):
    code, out, err = posenc("vectors", "--against", "right.py:apply", "--config", "config.json")
    assert (code, err) == (0, "")
    assert "no fault found" in out
    code, out, _ = posenc("vectors", "--against", "wrong.py:apply", "--config", "config.json")
    assert code == 1
    assert "the base is 10,000" in out
    code, out, _ = posenc(
        "vectors", "--against", "wrong.py:apply", "--config", "config.json", "--json"
    )
    assert [finding["name"] for finding in json.loads(out)["findings"]] == ["the base is 10,000"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--out"),
        (["--out", "a", "--check", "b"], "one of"),
        (["--against", "right.py:apply"], "--config"),
        (["--against", "right.py", "--config", "config.json"], "my_module.py:apply"),
        (["--against", "right.py:other", "--config", "config.json"], "other"),
        (["--against", "right.py:apply", "--config", "none.json"], "none.json"),
        (["--against", "right.py:apply", "--config", "config.json", "--layer", "99"], "`layer`"),
        (["--check", "."], "index.json"),
    ],
)
def test_wrong_usage_is_answered_with_a_sentence(words, says, posenc, mine):
    code, _, err = posenc("vectors", *words)
    assert code == 2
    assert says in err


def test_a_folder_is_written_and_checked(posenc, monkeypatch):
    from posenc.lab.vectors import files

    few = [case for case in files.cases() if case.kind == "mask"]
    monkeypatch.setattr(files, "cases", lambda: iter(few))
    code, out, _ = posenc("vectors", "--out", "vectors")
    assert (code, out) == (0, f"{len(few)} cases in vectors\n")
    code, out, _ = posenc("vectors", "--check", "vectors")
    assert (code, out) == (0, f"{len(few)} cases are equal\n")
    assert posenc("vectors", "--out", "vectors")[0] == 2
