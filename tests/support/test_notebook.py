"""Notebook output of objects: small, escaped, plain text elsewhere. The example notebook is run
cell by cell, and the last value of a cell must have the methods that Jupyter calls.
"""

import ast
import json
import re
from html import escape
from pathlib import Path

import pytest

import posenc
from posenc import Encoding, RoPE, create, properties
from posenc.catalog import CATALOG, find
from posenc.support import notebook

NOTEBOOK = Path(__file__).parents[2] / "examples/first_steps.ipynb"
CELLS = [
    cell["source"]
    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    if cell["cell_type"] == "code"
]


def last_value(source, names):
    """The value of a cell: that of its last line, if it is an expression."""
    tree = ast.parse(source)
    *before, last = tree.body
    exec(compile(ast.Module(before, []), "cell", "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    exec(compile(ast.Module([last], []), "cell", "exec"), names)
    return None


@pytest.mark.slow
def test_the_notebook_runs_and_its_cells_show_themselves():
    names: dict = {}
    values = [last_value(source, names) for source in CELLS]
    shown = [value for value in values if hasattr(value, "_repr_html_")]
    assert len(shown) == len(CELLS) - 1  # the last cell ends with a shape
    assert tuple(values[-1]) == (1, 16, 512)
    for value in shown:
        assert value._repr_html_().startswith("<")
        assert len(repr(value)) < 2_000, "plain text elsewhere"


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
def test_every_encoding_and_its_card_are_a_small_card(card):
    encoding = create(card.slug)
    assert all(len(one._repr_html_()) < 4_000 for one in (card, encoding))
    assert escape(card.formula.splitlines()[0]) in card._repr_html_()
    assert repr(encoding).split("(")[0] in encoding._repr_html_()
    assert repr(card) == f"Card({card.name!r}, {card.paper.short})"


def test_a_card_says_what_holds_and_who_uses_it():
    html = find("alibi")._repr_html_()
    assert "✓ shift invariant" in html
    assert "✗ " in html
    assert "used by BLOOM, MPT" in html
    assert "Press et al. 2022" in html


class Mine(Encoding):
    """Mine: does <nothing> & more.

    q = <q>
    """


def test_text_of_users_is_escaped():
    assert "&lt;q&gt;" in Mine()._repr_html_() or "<q>" not in Mine()._repr_html_()
    assert "<script" not in notebook.card("<script>", ["<script>"], "<script>")
    assert "<script" not in notebook.table(["<script>"], [["<script>", "<script>"]], "<script>")


def test_findings_are_a_dict_that_prints_as_a_table():
    found = properties.check(RoPE(16))
    assert isinstance(found, dict)
    assert found["shift_invariant"].holds
    assert str(found) == repr(found)
    assert str(found).splitlines()[0].startswith("unique_positions     ✓")
    assert found._repr_html_().count("<tr>") == len(found) + 1


def test_a_comparison_shows_a_curve_for_each_and_leads_to_the_guide(small):
    """The curve against the numbers: ALiBi's falls from 0 to its end, NoPE's is 0."""
    result = posenc.compare(["alibi", "nope"], settings=small)
    html = result._repr_html_()
    assert html.count("<svg role=") == html.count("<polyline") == 2
    alibi, nope = re.findall(r'points="([^"]+)"', html)
    down = [float(point.split(",")[1]) for point in alibi.split()]
    assert down == sorted(down)
    assert down[-1] - down[0] == notebook.HIGH - 4
    assert len({point.split(",")[1] for point in nope.split()}) == 1
    assert "posenc.guide()" in html
    rows = posenc.guide()._repr_html_()
    assert rows.count("<tr>") == len(posenc.guide()) + 1 == 8
    assert "*" not in rows
