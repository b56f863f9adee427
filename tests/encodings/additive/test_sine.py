"""Sine against the sine of Python, one number at a time."""

import math

import pytest
import torch

from posenc import Sine


def row(p, dim=3):
    return Sine(dim)(torch.zeros(1, 1, dim), torch.tensor([p]))[0, 0].tolist()


@pytest.mark.parametrize("p", [0, 1, 2, 353, -17, 2**24 + 1, 10**9, 0.5])
def test_adds_the_sine_of_the_position_to_every_channel(p):
    assert row(p) == pytest.approx([math.sin(p)] * 3, abs=3.1e-8)


def test_positions_on_the_way_up_and_down_are_almost_the_same():
    assert [round(row(p)[0], 5) for p in (2, 353)] == [0.90930, 0.90931]


def test_the_sine_alone_cannot_be_shifted():
    # Were sin(p + 1) some a · sin p, then a would be the same for all p.
    ratios = [row(p + 1)[0] / row(p)[0] for p in (1, 2, 3)]
    assert max(ratios) - min(ratios) > 0.5
