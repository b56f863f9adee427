"""Fields that a card reads from a docstring and a paper, against ones written here."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from refusals import refused

from posenc import encodings
from posenc.catalog import CATALOG, find
from posenc.encodings.nope import NoPE
from posenc.properties import check, shift_invariant
from posenc.properties.card import Card, Paper, findings, kept_findings, paper
from posenc.support.cards import papers

TEXT = """Tide: what comes in goes out,
twice a day.

    PE(p) = sin(p / 12)
    p in hours

It has no end.

    sin² + cos² = 1

Newton 1687, "Principia".
"""


@pytest.fixture
def card(monkeypatch):
    """The card of a file with that docstring."""
    module = ModuleType("tide", TEXT)
    monkeypatch.setitem(sys.modules, "tide", module)

    def make(dim, heads):
        return NoPE()

    make.__module__ = "tide"
    return Card("Linear tide/ebb + flow", None, make, frozenset({shift_invariant}))


def test_the_slug_is_what_one_types(card):
    assert card.slug == "linear-tide-ebb-flow"


def test_the_summary_is_the_first_sentence_without_the_name(card):
    assert card.summary == "what comes in goes out, twice a day."


def test_the_formula_is_what_is_indented(card):
    assert card.formula == "PE(p) = sin(p / 12)\np in hours\n\nsin² + cos² = 1"


def test_a_docstring_of_its_own_stands_for_that_of_the_file(card):
    own = Card("Ebb", None, card.make, frozenset(), "It goes.")
    assert (own.text, own.summary, own.formula) == ("It goes.", "It goes.", "")
    assert Card("Ebb", None, card.make, frozenset(), "").text == ""


@pytest.mark.parametrize(
    ("authors", "short"),
    [
        ("Newton, Isaac", "Newton 1687"),
        ("Newton, Isaac and Leibniz, Gottfried", "Newton and Leibniz 1687"),
        ("Newton, Isaac and Leibniz, Gottfried and Hooke, Robert", "Newton et al. 1687"),
        ("Newton, Isaac and others", "Newton et al. 1687"),
    ],
)
def test_a_paper_is_called_by_its_authors_and_year(authors, short):
    assert Paper("key", "Principia", authors, 1687, "https://a.b", "").short == short


def test_a_reference_is_an_entry_of_the_bibliography():
    """Read from arXiv, and from a page elsewhere."""
    roformer, rerope = paper("su2021roformer"), paper("su2023rerope")
    assert (roformer.year, roformer.link) == (2021, "https://arxiv.org/abs/2104.09864")
    assert roformer.title == "RoFormer: Enhanced Transformer with Rotary Position Embedding"
    assert roformer.bibtex.startswith("@misc{su2021roformer,\n  title = {{RoFormer:")
    assert "eprint = {2104.09864}" in roformer.bibtex
    assert rerope.link == "https://github.com/bojone/rerope"
    assert (rerope.short, "eprint" in rerope.bibtex) == ("Su 2023", False)


def test_an_unknown_key_is_refused():
    with refused(LookupError, "`key`", "'su1021'", "papers.bib"):
        paper("su1021")


def test_every_entry_is_cited_by_a_card():
    text = (Path(encodings.__file__).parent / "papers.bib").read_text("utf-8")
    assert sorted(papers()) == sorted({card.paper.key for card in CATALOG})
    assert text.count("@misc{") == len(papers())


def test_kept_findings_are_those_that_check_gives(monkeypatch, tmp_path):
    """Measured, and read again; infinite defects too."""
    monkeypatch.setenv("POSENC_CACHE", str(tmp_path))
    for slug in ("t5", "nope"):
        torch.manual_seed(0)
        found = check(find(slug).make(64, 4), 64, 4)
        for _ in range(2):
            kept = kept_findings(find(slug))
            assert [*kept] == [*found]
            for name, finding in found.items():
                assert (kept[name].holds, kept[name].why) == (finding.holds, finding.why)
                assert kept[name].defect == pytest.approx(finding.defect, nan_ok=True)
        assert {*findings(find(slug))["defects"]} == {*found}
