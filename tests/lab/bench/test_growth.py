"""Exponents of growth, against powers that are known."""

import math

import pytest

from posenc.lab.bench import growth

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
