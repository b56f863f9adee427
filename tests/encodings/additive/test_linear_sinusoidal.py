"""Linear sinusoidal against sin(p/j) and cos(p/j), one number at a time."""

import math
from itertools import pairwise

import pytest
import torch
from refusals import refused

from posenc import LinearSinusoidal


def row(p, dim):
    return LinearSinusoidal(dim)(torch.zeros(1, 1, dim), torch.tensor([p]))[0, 0]


@pytest.mark.parametrize("dim", [2, 8, 512])
@pytest.mark.parametrize("p", [0, 1, 7, 1608, -2, 10**6])
def test_equals_its_formula_with_j_from_one(p, dim):
    pairs = [(math.sin(p / j), math.cos(p / j)) for j in range(1, dim // 2 + 1)]
    assert row(p, dim).tolist() == pytest.approx([x for pair in pairs for x in pair], abs=3.2e-8)


def test_wavelengths_grow_by_equal_steps():
    slow = [2 * math.pi / theta for theta in LinearSinusoidal(512).freqs.tolist()]
    assert [round(x) for x in slow[-2:]] == [1602, 1608]
    steps = [b - a for a, b in pairwise(slow)]
    assert steps == pytest.approx([2 * math.pi] * 255)


def test_the_length_of_a_row_is_the_root_of_half_its_channels():
    for p in (0, 3, 99):
        assert row(p, 18).norm().item() == pytest.approx(3.0)


def test_an_odd_width_is_refused():
    with refused(ValueError, "`width`", 2, 5):
        LinearSinusoidal(5)
