"""`posenc compare` and `posenc report`, as a person types them."""

import json

import pytest

from posenc.lab.compare import comparison


def test_compares_on_a_text_of_ones_own(posenc, tmp_path):
    text = tmp_path / "mine.txt"
    text.write_text("the dog chased another dog . " * 20)
    code, out, _ = posenc("compare", "rope", "nope", "--text", text, "--out", tmp_path / "report")
    assert code == 0
    assert "mine.txt, 120 words" in " ".join(out.split())
    assert "RoPE" in out
    assert "ALiBi" not in out
    held = json.loads((tmp_path / "report" / "results.json").read_text())
    assert held["source"] == "mine.txt"
    assert "mine.txt" in (tmp_path / "report" / "index.html").read_text()


def test_prints_one_document_with_json_and_nothing_else(posenc):
    code, out, _ = posenc("compare", "alibi", "--json")
    assert code == 0
    assert [one["slug"] for one in json.loads(out)["encodings"]] == ["alibi"]


def test_the_terminal_ends_with_three_answers_and_the_files_to_open(posenc, tmp_path, monkeypatch):
    """In 80 columns. NoPE alone cannot see order; Learned alone has a last position."""
    monkeypatch.setenv("COLUMNS", "80")
    folder = tmp_path / "report"
    code, out, _ = posenc("compare", "nope", "learned", "--rounds", "3", "--out", folder, "--json")
    costs = [one["cost"]["training_ratio"] for one in json.loads(out)["encodings"]]
    assert (code, [cost["rounds"] for cost in costs]) == (0, [3, 3])
    assert all(cost["low"] <= cost["median"] <= cost["high"] for cost in costs)
    code, out, _ = posenc("compare", "nope", "learned", "--out", folder)
    *tables, blank, order, last, most, again, page, explorer, numbers = out.splitlines()
    assert (code, blank, again) == (0, "", "")
    assert max(map(len, [*tables, order, last, most])) <= 80
    assert order.endswith(": NoPE.")
    assert last.endswith(": Learned.")
    assert "×" in most
    for line, name in ((page, "index.html"), (explorer, "explore.html"), (numbers, "results.json")):
        assert line.endswith(str(folder / name))


@pytest.mark.slow
def test_looks_closely_and_writes_figures_that_it_knows_again(posenc, tmp_path):
    out = tmp_path / "report"
    for kind in ("svg", "png"):
        code, said, _ = posenc("report", "alibi", "--out", out, "--figures", kind)
        assert code == 0
        assert str(out / "index.html") in "".join(said.split("\n"))
        held = json.loads((out / "results.json").read_text())
        assert held["portrait"]["encodings"][0]["slug"] == "alibi"
        assert held["provenance"]["command"].endswith(f"--figures {kind}")
        assert all((out / "figures" / name).stat().st_size > 1000 for name in held["figures"])
        (out / "figures" / f"alibi-parts.{kind}").rename(out / "figures" / "kept")
        code, _, err = posenc("report", "alibi", "--out", out)
        assert (code, "holds figures, which is not an earlier report" in err) == (2, True)
        (out / "figures" / "kept").unlink()


def test_a_model_that_is_none_is_said_before_anything_is_measured(posenc, tmp_path):
    code, out, err = posenc("report", "--out", tmp_path / "r", "--model", tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith("error: --model: ")
    assert err.count("\n") == 1


def test_an_interruption_is_130_and_leaves_no_half_report(posenc, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "compare", interrupted)
    code, _, err = posenc("compare", "--out", tmp_path)
    assert (code, err) == (130, "interrupted\n")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_1_and_says_so(posenc, tmp_path, monkeypatch):
    from posenc.show.report import page

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page, "write", full)
    code, _, err = posenc("compare", "nope", "--out", tmp_path)
    assert code == 1
    said = f"{tmp_path} could not be written: No space left on device."
    assert err.splitlines()[-1].endswith(said)  # on a busy machine, progress is printed before
