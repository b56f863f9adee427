"""`posenc list`, `posenc show` and `posenc cite`, as a person types them."""

import io
import json
import re

import pytest
from rich.console import Console

from posenc import CATALOG
from posenc.show.report.terminal import catalog as terminal_catalog
from posenc.support import names


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


def test_shows_what_a_word_means_and_where_it_is(posenc):
    code, out, err = posenc("show", "permutation invariant")
    assert (code, err) == (0, "")
    assert "examples/shuffle_test.py" in out
    assert json.loads(posenc("show", "Torus", "--json")[1])["where"].endswith("repeats.py")
    assert "arXiv:2104.09864" in posenc("show", "rotary position embedding")[1]
    assert posenc("show", "no such word")[0] != 0


def test_shows_who_uses_a_published_name_and_whether_posenc_has_it(posenc):
    """Asked by its name, or by the key of a config."""
    for name in ("log-CPB", "relative_position_bias_table"):
        code, out, err = posenc("show", name)
        assert (code, err) == (0, "")
        assert "b[Δy, Δx]" in out
        assert "BEiT" in out
        assert re.search(r"in posenc:.*`SwinV2`", out)
        assert "posenc show swin" in out


def test_what_is_packaged_is_shown_as_what_is_measured_anew(posenc):
    """But for the last digit of a number, which tests/core/test_names.py allows for."""
    for name in ("fox", "alibi"):
        packaged, fresh = (
            json.loads(posenc("show", name, "--json", *option)[1]) for option in ([], ["--measure"])
        )
        assert [*packaged] == [*fresh]
        holds = [[f["holds"] for f in one["properties"].values()] for one in (packaged, fresh)]
        assert holds[0] == holds[1]
        assert (packaged["text"], packaged["causal"]) == (fresh["text"], fresh["causal"])
        tables = [posenc("show", name, *option)[1] for option in ([], ["--measure"])]
        assert len({re.sub(r"[\d.,−-]+|\s+", "", table) for table in tables}) == 1


def test_cites_a_paper_once(posenc):
    code, out, _ = posenc("cite", "sine", "sinusoidal", "rope")
    assert code == 0
    assert out.count("@misc{") == 2


def test_a_pipe_gets_a_whole_line_for_each_encoding(posenc):
    _, out, _ = posenc("list")
    lines = [line.split("\t") for line in out.splitlines()]
    assert [fields[0] for fields in lines] == [card.slug for card in CATALOG]
    for fields, card in zip(lines, CATALOG, strict=True):
        assert fields[1:] == [
            card.family,
            card.used_by or card.paper.short,
            card.summary.rstrip("."),
        ]


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_gets_every_word(width):
    console = Console(width=width, record=True, force_terminal=True, file=io.StringIO())
    terminal_catalog.print_catalog(names.cards().values(), console)
    shown = console.export_text()
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    said = {*shown.split()}
    for card in CATALOG:
        assert {*card.summary.rstrip(".").split()} <= said
