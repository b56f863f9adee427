"""Hands against complex numbers: a query at m and a key at n are e^(i m θ) and e^(i n θ)."""

import cmath
import math

import pytest

from posenc import RoPE, XPos
from posenc.analysis.clocks import channel_pairs, clocks


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_hands_turn_by_theta_a_token_and_their_angle_stays(layout):
    found = clocks(RoPE(16, layout=layout), range(40), gap=4)
    assert found.position == [*range(40)]
    for pair, clock in zip((0, 1, 3, 7), found.clocks, strict=True):
        theta = 10_000 ** (-2 * pair / 16)
        assert clock.theta == pytest.approx(theta, rel=1e-6)
        assert clock.wavelength == pytest.approx(2 * math.pi / theta, rel=1e-6)
        for n, (query, key) in enumerate(zip(clock.query, clock.key, strict=True)):
            assert complex(*query) == pytest.approx(cmath.exp(1j * (n + 4) * theta), abs=1e-6)
            assert complex(*key) == pytest.approx(cmath.exp(1j * n * theta), abs=1e-6)
        assert clock.changed < 1e-6
    last = {"interleaved": (14, 15), "half": (7, 15)}[layout]
    assert found.clocks[-1].channels == last


def test_xpos_stretches_the_hands_and_keeps_the_angle():
    found = clocks(XPos(16), range(0, 900, 100), gap=3)
    assert all(clock.changed < 1e-6 for clock in found.clocks)
    lengths = [abs(complex(*hand)) for hand in found.clocks[0].query]
    assert max(lengths) > 1.01 * min(lengths)


def test_pairs_of_part_of_a_head_are_where_they_turn():
    assert channel_pairs(RoPE(4, 8, layout="half"), 8) == [(0, 2), (1, 3)]
    assert channel_pairs(RoPE(4, 8, trailing=True), 8) == [(4, 5), (6, 7)]


def test_few_pairs_are_all_shown():
    assert [clock.channels for clock in clocks(RoPE(4), range(3)).clocks] == [(0, 1), (2, 3)]
