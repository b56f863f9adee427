"""The list of encodings against the order in which a reader looks for them, and one of them."""

import io

from rich.console import Console

from posenc import CATALOG
from posenc.catalog import find
from posenc.commands import cli
from posenc.properties import check
from posenc.properties.card import described
from posenc.show.report.terminal import catalog
from posenc.support import names


def on_terminal(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, record=True)
    catalog.print_catalog(names.cards().values(), console)
    return console.export_text().splitlines()


def test_the_list_is_by_family_and_use():
    lines = on_terminal(120)
    places = [
        next(n for n, line in enumerate(lines) if line.startswith(name))
        for name in ("Turned", "rope ", "xpos ", "liere ", "Biases", "t5 ", "kerple ", "Added",
                     "sinusoidal ", "sine ", "Relative", "Nothing", "nope ")
    ]  # fmt: skip
    assert places == sorted(places)
    assert "Llama" in lines[places[1]]


def test_the_list_fits_a_usual_terminal():
    assert max(map(len, on_terminal(80))) <= 80
    assert len(on_terminal(80)) <= 2.7 * len(CATALOG)


def test_the_list_has_every_encoding_with_what_it_does(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    cli.main(["list"])
    shown = capsys.readouterr().out
    for card in CATALOG:
        assert card.slug in shown
        assert card.summary.rstrip(".") in shown


def test_a_card_shows_formula_witness_and_bibtex():
    card = find("sinusoidal")
    console = Console(file=io.StringIO(), width=80)
    catalog.print_card(described(card, False, check(card.make(16, 4))), console)
    text = console.file.getvalue()
    assert "PE(p, 2j) = sin(p θⱼ)" in text
    assert "first rises at offset 6" in text
    assert "@misc{vaswani2017attention" in text
