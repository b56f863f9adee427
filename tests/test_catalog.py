"""Every encoding keeps every promise on its card, and breaks every one it does not make."""

import functools

import pytest
import torch

from posenc import CATALOG, RoPE, SelfAttention, create, positions
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
def test_can_be_found_by_its_name_however_written(card):
    for name in (card.name, card.slug, card.name.upper(), card.slug.replace("-", "_")):
        assert find(name) is card


@EACH
def test_every_parameter_can_be_sharded(card):
    """FSDP2 cuts along the first axis, and refuses what has none."""
    assert all(weight.ndim for weight in card.make(16, 4).parameters())


@EACH
def test_every_parameter_gets_a_gradient(card):
    layer = SelfAttention(64, heads=4, encoding=create(card.slug, dim=16, heads=4))
    x, pos = torch.randn(2, 27, 64), torch.arange(27)
    axes = layer.encoding.axes
    out = layer(x, pos if axes == 1 else positions.grid(*[3] * 3)[:, :axes])
    out.square().sum().backward()
    for name, parameter in layer.encoding.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@EACH
def test_says_what_it_is(card):
    assert len(card.summary) > 20
    assert card.summary[-1] in ".!:"
    assert "=" in card.formula
    assert not card.formula.startswith(" ")


@EACH
def test_its_reference_can_be_pasted_into_a_bibliography(card):
    entry = card.paper.bibtex()
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
    with pytest.raises(LookupError, match=rf"called '{typo}'. Did you mean .*\b{meant}\b"):
        create(typo, dim=8, heads=2)


def test_what_resembles_nothing_is_answered_with_where_to_look():
    with pytest.raises(LookupError, match=r"called 'xyzzy'. `posenc list` shows all"):
        find("xyzzy")


@EACH
def test_an_unknown_option_is_named(card):
    with pytest.raises(
        TypeError, match=rf"^{card.name} has no `bananas`: it takes (no options|`.*`)\.$"
    ):
        create(card.slug, dim=16, heads=4, bananas=3)


def test_sizes_may_be_left_out():
    assert create("rope").dim == 64
    assert create("alibi").heads == 8
    assert create("sinusoidal").width == 512


def test_reprs_say_sizes_base_and_layout():
    assert (
        repr(create("sinusoidal")) == "Sinusoidal(512 channels, base=10000, layout='interleaved')"
    )
    assert repr(create("alibi")) == "ALiBi(8 heads, strength=1)"
    assert repr(create("learned", length=9)) == "Learned(512 channels, length=9, beyond='refuse')"
    assert repr(create("shaw")) == "Shaw(64 channels, reach=16)"
    for card in CATALOG:
        said = repr(create(card.slug))
        assert card.slug == "nope" or any(f"{n} {what}" in said for n, what in SIZES), said


SIZES = (64, "channels"), (512, "channels"), (8, "heads")
