"""Errors in code of the user, or in the command line, are reported in one line."""

import json
import re

import pytest

OWN = """from posenc import Encoding


class Mine(Encoding):
    '''Louder: later keys are louder.

        k′ = p k
    '''

    causal = True

    def on_keys(self, k, at):
        return k * at.unsqueeze(-1)


class Breaks(Encoding):
    def on_queries(self, q, at):
        return q / self.nothing


class Refuses(Encoding):
    def on_queries(self, q, at):
        raise ValueError("not these queries")


class Asks(Encoding):
    def __init__(self, tokens):
        super().__init__()
"""


@pytest.mark.slow
def test_an_encoding_of_ones_own_is_shown_compared_and_reported(posenc, tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    mine, page = f"{tmp_path}/mine.py:Mine", tmp_path / "page"
    code, out, err = posenc("show", mine)
    assert (code, err) == (0, "")
    masked = "Made for causal attention, and measured under a causal mask: Mine."
    assert "k′ = p k" in out
    assert masked in out
    assert re.search(r"packed texts +✓ +\d comparisons", out)
    _, out, _ = posenc("show", mine, "--json")
    assert json.loads(out)["causal"] is True
    promises = json.loads(out)["promises"]
    assert promises["token by token"]["holds"] is True
    assert (json.loads(out)["name"], json.loads(out)["paper"]) == ("mine", None)
    code, out, _ = posenc("compare", mine, "rope", "--out", page)
    assert code == 0
    assert "Mine" in out
    assert masked in out
    assert "later keys are louder" in (page / "index.html").read_text()
    assert masked in (page / "index.html").read_text()
    code, *_ = posenc("report", mine, "--out", page)
    assert code == 0
    assert json.loads((page / "results.json").read_text())["encodings"][0]["paper"] is None


def test_promises_that_one_of_ones_own_breaks_are_shown_with_their_witness(posenc, tmp_path):
    """A convolution over keys: with a cache, the first key of each call has none before it."""
    lines = (
        "from posenc import Encoding",
        "class Mine(Encoding):",
        "    def on_keys(self, k, at):",
    )
    (tmp_path / "mine.py").write_text("\n".join([*lines, "        return k + k.roll(1, -2)"]))
    code, out, _ = posenc("show", f"{tmp_path}/mine.py:Mine")
    assert code == 1
    assert re.search(r"cache +✗ +token by token with a cache, path", out)
    assert re.search(r"paths +✓", out)
    code, out, _ = posenc("show", f"{tmp_path}/mine.py:Mine", "--json")
    promises = json.loads(out)["promises"]
    assert code == 1
    assert "by_length = True" in promises["cache"]["remedy"]
    assert promises["paths"]["remedy"] == ""
    code, out, _ = posenc("show", "rope")
    assert code == 0
    assert "packed texts" not in out


@pytest.mark.parametrize(
    ("command", "name", "said"),
    [
        ("show", "Mien", r"mine\.py has no `Mien`\. Did you mean Mine\?"),
        ("show", "Breaks", r"mine\.py, line 18: AttributeError: 'Breaks' object has no attribute"),
        (
            "compare",
            "Breaks",
            r"mine\.py, line 18: AttributeError: 'Breaks' object has no attribute",
        ),
        ("show", "Refuses", r"Refuses could not .* not these queries \(mine\.py, line 23\)"),
        (
            "compare",
            "Asks",
            r"mine\.py:Asks .*`dim`, `heads` or `width`.*`tokens`",
        ),
        (
            "cite",
            "Mine",
            r"`NAMES` must be encodings of posenc, got Mine\b.* Leave out Mine\.",
        ),
    ],
)
def test_what_goes_wrong_in_ones_own_encoding_is_one_line(posenc, tmp_path, command, name, said):
    (tmp_path / "mine.py").write_text(OWN)
    code, out, err = posenc(command, f"{tmp_path}/mine.py:{name}")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert re.search(rf"^error: .*{said}", err), err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["report", "roep", "--out", "new"], "no encoding is called 'roep'. Did you mean rope"),
        (["report", "rope"], "`--out` must be the folder of the report, got none"),
        (["report", "--out", "full"], "--out: full holds thesis.tex, which is not an earlier"),
        (["report", "--out", "new", "--figures", "gif"], "gif"),
        (["compare", "roep"], "no encoding is called 'roep'. Did you mean rope"),
        (["show", "xyzzy"], "no encoding is called 'xyzzy'. `posenc list` shows all."),
        (["cite"], "requires an argument"),
        (["compare", "--text", "absent.txt"], "--text: there is no file absent.txt."),
        (
            ["compare", "--text", "empty.txt"],
            "--text: empty.txt must have at least 32 words, got 0",
        ),
        (["compare", "--text", "binary"], "--text: binary is not a text"),
        (["compare", "--text", "."], "--text: . cannot be read: Is a directory."),
        (["compare", "--out", "full"], "--out: full holds thesis.tex, which is not an earlier"),
        (["compare", "--out", "empty.txt"], "--out: empty.txt is not a folder."),
        (["compare", "--out", "empty.txt/below"], "--out: empty.txt/below cannot be written to"),
        (["compare", "--outt", "x"], "--outt"),
        (["comprae"], "comprae"),
    ],
)
def test_bad_input_gets_one_line_and_2(posenc, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "binary").write_bytes(b"\0\1\2")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    code, out, err = posenc(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1
    assert (tmp_path / "full" / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["show", "rpoe"], "rope"),
        (["cite", "alibbi"], "alibi"),
        (["compare", "sinusodal"], "sinusoidal"),
        (["report", "deberta-v3", "--out=o"], "deberta"),
        (["show", "learnt"], "learned"),
        (["shwo"], "`posenc show`"),
        (["inspct", "."], "`posenc inspect`"),
        (["compare", "--txt=x"], "--text"),
        (["report", "--ot=x"], "--out"),
    ],
)
def test_a_slip_of_the_keys_is_told_what_was_meant(posenc, words, meant):
    code, _, err = posenc(*words)
    assert (code, f"id you mean {meant}" in err) == (2, True)
