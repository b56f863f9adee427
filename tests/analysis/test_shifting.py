"""Fitted matrices against the rotation of the formula, written out."""

import math

import pytest
import torch

from posenc import ALiBi, Binary, Integer, RoPE, Sinusoidal
from posenc.analysis.shifting import group


def rotation(k, dim, base=10_000):
    """M_k for (sin, cos) beside each other: blocks [[c, s], [−s, c]]."""
    made = torch.zeros(dim, dim, dtype=torch.float64)
    for pair in range(dim // 2):
        angle = k * base ** (-2 * pair / dim)
        c, s = math.cos(angle), math.sin(angle)
        made[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = torch.tensor([[c, s], [-s, c]])
    return made


def test_sinusoids_are_moved_by_a_rotation_and_rotations_are_a_group():
    found = group(Sinusoidal(8), 3, 5)
    for shift, k in ((found.a, 3), (found.b, 5), (found.both, 8)):
        assert shift.by == k
        assert shift.missed < 1e-4
        assert torch.tensor(shift.matrix).allclose(rotation(k, 8).float(), atol=1e-4)
    assert torch.tensor(found.product).allclose(rotation(8, 8).float(), atol=1e-4)
    assert found.apart < 1e-4


def test_what_rope_makes_of_ones_is_moved_by_one_too():
    assert group(RoPE(8), 2, 7).both.missed < 1e-4


@pytest.mark.parametrize("encoding", [Integer(8), Binary(8, bits=8)])
def test_counting_is_moved_by_no_matrix(encoding):
    found = group(encoding, 3, 5, tokens=100)
    assert min(found.a.missed, found.b.missed, found.both.missed) > 0.05


def test_a_bias_has_no_rows_to_move():
    assert group(ALiBi(4), 3, 5) is None
