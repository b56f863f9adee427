"""Drawn formulas, parsed as XML, against the text they are made of, symbol by symbol."""

import re
import unicodedata
from xml.etree import ElementTree

import pytest

from posenc.catalog import CATALOG
from posenc.show.report import mathml

KNOWN = {
    "math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mfrac", "msqrt", "mover",
    "msub", "msup", "msubsup", "munder", "code",
}  # fmt: skip


def parsed(formula):
    return ElementTree.fromstring(mathml.math(formula))


def shape(formula):
    """(mfrac (mi c) (msqrt (mn 3) (mi d))), without spaces and rows of one."""

    def told(element):
        inner = [told(child) for child in element if child.tag != "mspace"]
        return f"({' '.join([element.tag, *filter(None, [element.text]), *inner])})"

    return " ".join(told(child) for child in parsed(formula) if child.tag != "mspace")


def plain(text):
    """Return the symbols in order, without those that only set places."""
    text = re.sub("(['′])([ᵢⱼ])", r"\2\1", text)  # MathML has the lower script first
    text = unicodedata.normalize("NFKC", text).replace("Σ", "∑").replace("'", "′")
    return re.sub(r"[\s^_(){}/`√\u0304]", "", text)


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
def test_every_symbol_of_a_card_is_drawn_in_its_order_and_none_besides(card):
    drawn = mathml.lines(card.formula)
    written = [line for line in card.formula.splitlines() if line.strip()]
    assert len(drawn) == len(written)
    for parts, line in zip(drawn, written, strict=True):
        elements = [ElementTree.fromstring(part) for part in parts]
        symbols = "".join("".join(element.itertext()) for element in elements)
        assert plain(symbols) == plain(line)
        assert {inner.tag for element in elements for inner in element.iter()} <= KNOWN


@pytest.mark.parametrize(
    ("formula", "drawn"),
    [
        ("qᵢ", "(msub (mi q) (mi i))"),
        ("base^(−2j/d)", "(msup (mi base) (mrow (mo −) (mn 2) (mi j) (mo /) (mi d)))"),
        ("δ^−p_h", "(msup (mi δ) (mrow (mo −) (msub (mi p) (mi h))))"),
        ("z'ⱼ", "(msubsup (mi z) (mi j) (mo ′))"),
        ("k̄ⱼ", "(msub (mover (mi k) (mo ¯)) (mi j))"),
        ("10⁻⁶", "(msup (mn 10) (mrow (mo −) (mn 6)))"),
        ("Σⱼ x", "(munder (mo ∑) (mi j)) (mi x)"),
        ("a + 2c / (b − 1)", "(mi a) (mo +) (mfrac (mrow (mn 2) (mi c)) "
            "(mrow (mi b) (mo −) (mn 1)))"),
        ("a + c/b", "(mi a) (mo +) (mi c) (mo /) (mi b)"),
        ("√(3d)", "(msqrt (mn 3) (mi d))"),
        ("|n|/m", "(mrow (mo |) (mi n) (mo |)) (mo /) (mi m)"),
        ("sin p", "(mi sin) (mi p)"),
        ("w rows of a table", "(mi w) (mtext rows) (mtext of) (mtext a) (mtext table)"),
        ("a(j) for axis a", "(mi a) (mrow (mo () (mi j) (mo ))) (mtext for) (mtext axis) (mi a)"),
        ('S = `span`, layout="half"', "(mi S) (mo =) (mtext (code span)) (mo ,) "
            '(mtext (code layout="half"))'),
    ],
)  # fmt: skip
def test_notation_is_drawn_as_it_reads(formula, drawn):
    assert shape(formula) == drawn


def test_words_are_apart_and_remarks_too():
    assert "mspace" in mathml.math("two words")
    assert [len(parts) for parts in mathml.lines("a = 1     radians\n\nb = 2")] == [2, 1]


@pytest.mark.parametrize(
    "text", ["<script>&", '"</math>', "((", "))", "^", "_", "a^", "√", "| <b>"]
)
def test_whatever_somebody_writes_it_is_one_harmless_element(text):
    element = parsed(text)
    assert {inner.tag for inner in element.iter()} <= KNOWN
    assert plain("".join(element.itertext())) == plain(text)
