"""The list of encodings against the order in which a reader looks for them."""

from posenc import CATALOG
from posenc.commands import cli


def test_the_list_is_by_family_and_use(capsys):
    cli.main(["list"])
    lines = capsys.readouterr().out.splitlines()
    places = [
        next(n for n, line in enumerate(lines) if line.startswith(name))
        for name in ("Turned", "rope ", "xpos ", "liere ", "Biases", "t5 ", "kerple ", "Added",
                     "sinusoidal ", "sine ", "Relative", "Nothing", "nope ")
    ]  # fmt: skip
    assert places == sorted(places)
    assert "Llama" in lines[places[1]]


def test_the_list_has_every_encoding_with_what_it_does(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    cli.main(["list"])
    shown = capsys.readouterr().out
    for card in CATALOG:
        assert card.slug in shown
        assert card.summary.rstrip(".") in shown
