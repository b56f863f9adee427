"""`posenc list`, `posenc show` and `posenc cite`, as a person types them."""

import json

from posenc import CATALOG


def test_lists_every_encoding(posenc):
    code, out, err = posenc("list")
    assert (code, err) == (0, "")
    assert all(card.slug in out for card in CATALOG)
    _, out, _ = posenc("list", "--json")
    assert [one["name"] for one in json.loads(out)] == [card.slug for card in CATALOG]


def test_shows_an_encoding_however_it_is_spelled(posenc):
    _, out, _ = posenc("show", "Transformer_XL")
    assert "arXiv:1901.02860" in out
    _, out, _ = posenc("show", "rope", "--json")
    assert json.loads(out)["properties"]["shift_invariant"]["holds"] is True


def test_cites_a_paper_once(posenc):
    code, out, _ = posenc("cite", "sine", "sinusoidal", "rope")
    assert code == 0
    assert out.count("@misc{") == 2
