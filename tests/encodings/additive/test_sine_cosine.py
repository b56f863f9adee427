"""Sine-cosine against a complex number on the unit circle."""

import cmath

import pytest
import torch
from refusals import refused

from posenc import SineCosine


def row(p, dim=6, theta=1.0):
    return SineCosine(dim, theta)(torch.zeros(1, 1, dim), torch.tensor([p]))[0, 0]


@pytest.mark.parametrize("theta", [1.0, 0.01, 25 * cmath.pi / 180])
@pytest.mark.parametrize("p", [0, 1, 44, 710, -3, 10**6])
def test_every_pair_is_the_same_point_on_a_circle(p, theta):
    on_circle = cmath.exp(1j * p * theta)
    assert row(p, theta=theta).tolist() == pytest.approx([on_circle.imag, on_circle.real] * 3)


def test_moving_on_turns_the_pair():
    here, there = (complex(*row(p, dim=2).flip(0).tolist()) for p in (5, 12))
    assert there == pytest.approx(here * cmath.exp(7j), abs=1e-6)


def test_comes_back_after_44_tokens_and_closer_after_710():
    def gap(p):
        return (row(p, dim=2) - row(0, dim=2)).norm().item()

    assert min(range(1, 355), key=gap) in (44, 333)
    assert gap(44) == pytest.approx(44 - 7 * 2 * cmath.pi, rel=1e-3)
    assert gap(710) == pytest.approx(6.03e-5, rel=1e-2)


def test_an_odd_width_is_refused():
    with refused(ValueError, "`width`", 2, 7):
        SineCosine(7)
