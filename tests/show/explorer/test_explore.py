"""The explorer beside a report, and the addresses that lead into it."""

import json
import re
import webbrowser
from pathlib import Path

import pytest
from javascript import evaluate

from posenc import CATALOG
from posenc.commands import cli
from posenc.lab.compare import comparison, portrait


@pytest.fixture
def posenc(monkeypatch, capsys, tmp_path):
    """posenc("explore", …) -> (exit code, stdout, stderr), in an empty folder."""
    monkeypatch.chdir(tmp_path)
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)

    def run(*words):
        try:
            cli.main([*map(str, words)])
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        return code, *capsys.readouterr(), opened

    return run


def data(path):
    found = re.search(r'id="data">(.*?)</script>', path.read_text("utf-8"), re.S)
    assert found is not None
    return json.loads(found[1])


def test_a_report_links_each_encoding_to_its_view(posenc, tmp_path, small, monkeypatch):
    for one in (comparison, portrait):
        monkeypatch.setattr(one, "Settings", lambda: small)
    assert posenc("compare", "nope", "rope", "--out", "report")[0] == 0
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    assert re.findall(r'href="explore.html(#[^"]*)"', page) == [
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


def test_addresses_of_the_gallery_are_states_of_encodings():
    text = (Path(__file__).parents[3] / "examples" / "README.md").read_text("utf-8")
    addresses = re.findall(r"`(#v1/[^`]*)`", text)
    assert len(addresses) > 12
    states = evaluate(["page/state.js"], "(all) => all.map(fromHash)", addresses)
    slugs = {card.slug for card in CATALOG}
    for address, state in zip(addresses, states, strict=True):
        assert address.split("/")[1] == state["view"]
        assert state["names"]
        assert {*state["names"]} <= slugs
        assert state["n"] == int((re.findall(r"n=(\d+)", address) or [64])[0])
        assert "text=" not in address or "dog" in state["text"]
    assert states[0]["order"] == [2, 1, 0]
