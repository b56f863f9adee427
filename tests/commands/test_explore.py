"""`posenc explore` on the command line: its file, its output and its errors."""

import json
import os
import re
import subprocess
import sys
import webbrowser

import pytest
from pages import page_data

from posenc.show.explorer import data as explorer_data
from posenc.show.explorer import ready

OWN = '''
import torch
from posenc import Encoding


class Mine(Encoding):
    """Near words are louder."""

    def __init__(self, heads: int, strength: float = 0.5):
        super().__init__()
        self.heads, self.strength = heads, strength

    def on_scores(self, q, k, q_at, k_at, scale):
        m, n = q_at[0, 0], k_at[0, 0]
        return lambda b, h, i, j: -self.strength * (m[i] - n[j]).abs().double().sqrt()


class Fourier(Encoding):
    """Turned by a transform that no page has."""

    def on_queries(self, q, at):
        return torch.fft.fft(q).real
'''


@pytest.fixture
def opened(monkeypatch):
    """The addresses that would be opened in a browser."""
    addresses = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    return addresses


def data(path):
    return page_data(path.read_text("utf-8"))


def test_a_page_is_written_and_opened(posenc, opened, tmp_path):
    explorer_data.catalog()  # measured, so that no note is printed
    code, out, err = posenc("explore", "alibi")
    assert (code, err) == (0, "")
    assert out.startswith("explore.html is written, ")
    assert opened == [(tmp_path / "explore.html").as_uri()]
    assert data(tmp_path / "explore.html")["first"] == ["alibi"]
    assert data(tmp_path / "explore.html")["command"] == "posenc explore alibi"


def test_a_model_is_baked_in(posenc, opened, tmp_path):
    (tmp_path / "model").mkdir()
    config = {"model_type": "qwen2", "rope_theta": 1e6, "max_position_embeddings": 32768}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    code, _, _ = posenc("explore", "model", "--no-browser", "--out", "page.html")
    assert (code, opened) == (0, [])
    first = data(tmp_path / "page.html")["models"][0]
    assert (first["name"], first["own"], first["context"]) == ("model", True, 32768)


@pytest.mark.slow
def test_encodings_of_ones_own_are_baked_in_or_said(tmp_path):
    """Runs in a separate process, because the shape checker prevents an export."""
    (tmp_path / "mine.py").write_text(OWN)
    words = ["explore", "mine.py:Mine", "mine.py:Fourier", "--no-browser"]
    done = subprocess.run(
        [sys.executable, "-m", "posenc", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = r"note: Fourier uses `_fft_\w+.default`, .* cannot run.*\n"
    assert re.fullmatch(said, done.stderr)
    mine, fourier = data(tmp_path / "explore.html")["encodings"][:2]
    assert mine["summary"] == "Near words are louder."
    assert mine["sliders"]["strength"]["values"][mine["sliders"]["strength"]["at"]] == 0.5
    assert "_fft_" in fourier["graph"]["sentence"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rpoe"], "no encoding is called 'rpoe'. Did you mean rope"),
        (["nowhere.json"], "error: nowhere.json: does not exist"),
        (["mine.py:Mine"], "there is no file mine.py"),
        (["--out", "."], "is a folder. Name a file in this folder"),
        (["--out", "no/page.html"], "no is not a folder."),
        (["--out", "taken.html"], "taken.html exists and is not a page of posenc"),
        (["--study", "nothing"], "nothing"),
    ],
)
def test_bad_input_gets_one_line_and_nothing_is_written(posenc, opened, tmp_path, words, said):
    (tmp_path / "taken.html").write_text("mine")
    code, out, err = posenc("explore", *words)
    assert (code, out, opened) == (2, "", [])
    assert said in err
    assert err.count("\n") == 1
    assert [one.name for one in tmp_path.iterdir()] == ["taken.html"]
    assert (tmp_path / "taken.html").read_text() == "mine"


def test_a_report_links_each_encoding_to_its_view(posenc, tmp_path):
    assert posenc("compare", "nope", "rope", "--out", "report")[0] == 0
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    assert re.findall(r'href="explore.html(#v1/encoding/[^"]*)"', page) == [
        "#v1/encoding/nope",
        "#v1/encoding/rope",
    ]
    assert data(tmp_path / "report" / "explore.html")["first"] == ["nope", "rope"]
    assert posenc("compare", "nope", "rope", "--out", "report")[0] == 0  # it is an earlier report
    (tmp_path / "report" / "explore.html").write_text("mine")
    assert posenc("compare", "nope", "rope", "--out", "report", "--force")[0] == 0
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    assert "explore.html" not in page
    assert "<code>posenc explore rope</code>" in page
    assert (tmp_path / "report" / "explore.html").read_text() == "mine"


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """A cache with measurements of all encodings but three, which are measured at once."""
    measured = explorer_data.catalog()
    unknown = {"fire", "rope", "t5"}

    def kept(card, bases):
        return None if card.slug in unknown else measured[card.slug]

    def measure(card, bases):
        unknown.discard(card.slug)
        return measured[card.slug]

    monkeypatch.setenv("POSENC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(explorer_data, "kept", kept)
    monkeypatch.setattr(explorer_data, "measure", measure)


def test_on_first_use_a_page_opens_before_all_is_measured(
    posenc, empty_cache, monkeypatch, tmp_path
):
    """The first page has the encodings named and those of the story, the second one has all."""
    pages = []
    monkeypatch.setattr(webbrowser, "open", lambda _: pages.append(data(tmp_path / "explore.html")))
    code, _, err = posenc("explore", "t5")
    assert (code, len(pages)) == (0, 1)
    assert "measuring 3 encodings" in err
    first, last = pages[0], data(tmp_path / "explore.html")
    assert slugs(last) - slugs(first) == {"fire"}
    assert {"t5", *explorer_data.STORY} <= slugs(first)
    assert (first["missing"], last["missing"]) == (["3 encodings", "the published models"], [])
    assert (first["models"], first["first"]) == ([], ["t5"])
    assert len(last["models"]) > 100
    assert ready.page(["t5"]) == last


def slugs(page):
    return {one["slug"] for one in page["encodings"]}


def test_a_page_of_the_catalogue_is_made_once(posenc, empty_cache, opened, monkeypatch, tmp_path):
    """The second page is written by a process that cannot import torch."""
    assert posenc("explore", "--no-browser", "--out", "first.html")[0] == 0
    (tmp_path / "torch.py").write_text("raise RuntimeError('torch is imported')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "posenc", "explore", "RoPE", "alibi", "rope", "--no-browser"]
    done = subprocess.run(
        words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    second = data(tmp_path / "explore.html")
    assert (second["first"], second["begin"]) == (["rope", "alibi"], "encoding")
    assert second["command"] == "posenc explore RoPE alibi rope --no-browser"
    begun = {"first": 0, "begin": 0, "command": 0}
    assert second | begun == data(tmp_path / "first.html") | begun
