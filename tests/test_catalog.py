"""Every encoding keeps every promise on its card, and breaks every one it does not make."""

import functools
import re

import pytest
import torch
from refusals import refused

from posenc import CATALOG, RoPE, SelfAttention, create
from posenc.catalog import find
from posenc.properties import ALL, check

EACH = pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)


@functools.cache
def findings(card):
    return check(card.make(16, 4))


@EACH
@pytest.mark.parametrize("measure", ALL, ids=lambda measure: measure.__name__)
def test_card_is_true(card, measure):
    found = findings(card)[measure.__name__]
    assert (found.holds is True) == (measure in card.holds), f"{measure.__doc__} {found}"


@EACH
@pytest.mark.parametrize(("dim", "heads", "seed"), [(8, 4, 1), (24, 1, 2)])
def test_marks_do_not_go_by_seed_or_size(unchecked, card, dim, heads, seed):
    torch.manual_seed(seed)
    found = check(card.make(dim, heads), dim, heads, seed=seed)
    marks = {name for name, finding in found.items() if finding.holds}
    assert marks == {measure.__name__ for measure in card.holds}


@EACH
def test_can_be_found_by_its_name_however_written(card):
    for name in (card.name, card.slug, card.name.upper(), card.slug.replace("-", "_")):
        assert find(name) is card


@EACH
def test_every_parameter_can_be_sharded(card):
    """FSDP2 cuts along the first axis, and refuses what has none."""
    assert all(weight.ndim for weight in card.make(16, 4).parameters())


@EACH
def test_says_what_it_is(card):
    assert len(card.summary) > 20
    assert card.summary[-1] in ".!:"
    assert "=" in card.formula
    assert not card.formula.startswith(" ")


@EACH
def test_its_reference_can_be_pasted_into_a_bibliography(card):
    entry = card.paper.bibtex
    assert entry.startswith(f"@misc{{{card.paper.key},\n")
    depth = 0
    for letter in entry:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        assert depth >= 0
    assert depth == 0
    assert card.paper.link.startswith("https://")
    assert str(card.paper.year) in card.paper.short


def test_slugs_are_unique_and_typable():
    slugs = [card.slug for card in CATALOG]
    assert len({*slugs}) == len(slugs)
    assert all(slug.replace("-", "").isalnum() and slug == slug.lower() for slug in slugs)


def test_keys_of_references_belong_to_one_paper_each():
    titles = {}
    for card in CATALOG:
        assert titles.setdefault(card.paper.key, card.paper) == card.paper


def test_creates_with_options():
    rope = create("RoPE", dim=8, heads=2, layout="half", gain=1.5)
    assert isinstance(rope, RoPE)
    assert (rope.layout, rope.gain, rope.dim) == ("half", 1.5, 8)


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("roep", "rope"), ("alibbi", "alibi"), ("sinusoid", "sinusoidal"), ("axial", "axial-rope")],
)
def test_a_typo_is_answered_with_what_was_meant(typo, meant):
    with refused(LookupError, f"'{typo}'"):
        create(typo, dim=8, heads=2)


def test_what_resembles_nothing_is_answered_with_where_to_look():
    with refused(LookupError, "'xyzzy'", "`posenc list`"):
        find("xyzzy")


@EACH
def test_an_unknown_option_is_named(card):
    with refused(TypeError, card.name, "`bananas`") as error:
        create(card.slug, dim=16, heads=4, bananas=3)
    assert re.search(r"(none|`\w+`)\.$", str(error.value))


def test_sizes_may_be_left_out():
    assert create("rope").dim == 64
    assert create("alibi").heads == 8
    assert create("sinusoidal").width == 512


def test_reprs_say_sizes_base_and_layout():
    sizes = "512 channels, base=10000, layout='interleaved', cosines_first=False"
    assert repr(create("sinusoidal")) == f"Sinusoidal({sizes})"
    assert repr(create("alibi")) == "ALiBi(8 heads, strength=1)"
    assert repr(create("learned", length=9)) == "Learned(512 channels, length=9, beyond='refuse')"
    assert repr(create("shaw")) == "Shaw(64 channels, reach=16)"
    for card in CATALOG:
        said = repr(create(card.slug))
        assert card.slug == "nope" or any(f"{n} {what}" in said for n, what in SIZES), said


SIZES = (64, "channels"), (512, "channels"), (8, "heads")


def test_a_sum_is_made_by_names_with_a_plus():
    made = create("Sinusoidal + alibi", dim=8, heads=2)
    assert [type(part).__name__ for part in made.parts] == ["Sinusoidal", "ALiBi"]
    assert (made.width, made.heads) == (16, 2)
    layer = SelfAttention(16, 2, "sinusoidal+alibi")
    assert layer(torch.zeros(1, 3, 16)).shape == (1, 3, 16)
    with refused(LookupError, "'alibbi'"):
        create("rope+alibbi")
    with refused(TypeError, "`options`"):
        create("rope+alibi", base=10.0)


def test_the_name_of_a_file_may_have_a_plus(tmp_path):
    (tmp_path / "my+own.py").write_text(
        "from posenc import Encoding\n\n\nclass Mine(Encoding):\n    pass\n"
    )
    assert type(create(f"{tmp_path}/my+own.py:Mine")).__name__ == "Mine"
