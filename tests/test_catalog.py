"""Every encoding keeps every promise on its card, and breaks every one it does not make."""

import functools

import pytest

from posenc.catalog import CATALOG
from posenc.properties import ALL, check


@functools.cache
def findings(card):
    return check(card.make(16, 4))


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
@pytest.mark.parametrize("measure", ALL, ids=lambda measure: measure.__name__)
def test_card_is_true(card, measure):
    found = findings(card)[measure.__name__]
    assert (found.holds is True) == (measure in card.holds), f"{measure.__doc__} {found}"
