"""Exponents of growth, compared with known powers."""

import math

import pytest

from benchmarks import growth
from posenc.catalog import CATALOG

pytestmark = pytest.mark.usefixtures("few_others")


def test_exponents_are_those_of_powers():
    for power in (0.5, 1, 2):
        times = {n: 3e-6 * n**power for n in (256, 512, 4096)}
        found = growth.fit_growth("rotation", "made up", times)
        assert (found.exponent, found.last) == (pytest.approx(power), pytest.approx(power))
    linear_then_quadratic = growth.fit_growth("", "", {1: 1.0, 2: 2.0, 4: 8.0})
    assert linear_then_quadratic.last == pytest.approx(2)
    assert 1 < linear_then_quadratic.exponent < 2


def test_growth_of_the_rotation_goes_to_the_longest():
    found = growth.of_rotations(1, 0.0, longest=512)
    assert {one.name for one in found} >= {"a copy", "posenc half", "posenc interleaved"}
    assert all(one.tokens == [256, 512] and math.isfinite(one.exponent) for one in found)


def test_a_layer_grows_until_the_next_length_would_take_too_long(monkeypatch):
    """Time and memory, with made-up results of the other process."""
    monkeypatch.setattr(growth, "LAYERS", (64, 128, 256))
    monkeypatch.setattr(growth.memory, "peaks", lambda *words: {"64": 2.0, "128": 8.0})
    (found,) = growth.of_layer("alibi", 1, 0.5)
    assert (found.part, found.name, found.tokens) == ("layer", "alibi", [64, 128])
    assert (found.megabytes, found.last_of_memory) == ([2.0, 8.0], 2.0)
    assert found.stopped == "256 tokens are refused, or would take over 0.5 s or half of memory"
    monkeypatch.setattr(growth, "LAYERS", (64, 128))
    assert not growth.of_layer("alibi", 1, 0.5)[0].stopped


def test_memory_of_a_layer_is_measured_while_time_and_memory_last(monkeypatch):
    monkeypatch.setattr(growth, "LAYERS", (64, 128, 256))
    monkeypatch.setattr(growth.memory, "peak", lambda call: (call(), 3.0)[1])
    assert growth.peaks("rope", "1000") == {"64": 3.0, "128": 3.0, "256": 3.0}
    assert growth.peaks("rope", "0") == {"64": 3.0}
    monkeypatch.setattr(growth, "_room", lambda: 20.0)
    assert growth.peaks("rope", "1000") == {"64": 3.0}


def test_an_encoding_that_has_a_last_position_grows_up_to_it(monkeypatch):
    """XPos is computed up to 18,478 tokens by its defaults, and refuses twice as many."""
    monkeypatch.setattr(growth, "LAYERS", (64, 128, 2**16))
    monkeypatch.setattr(growth.memory, "peak", lambda call: call() or 1.0)
    assert [*growth.peaks("xpos", "1000")] == ["64", "128"]


@pytest.mark.parametrize("card", CATALOG, ids=lambda card: card.slug)
def test_a_layer_of_every_encoding_can_be_grown(card):
    growth.layer_call(card.slug, 40)()
