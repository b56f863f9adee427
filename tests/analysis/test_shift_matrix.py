"""Fitted matrices against the rotation of the formula, written out."""

import math

import pytest
import torch

from posenc import ALiBi, Binary, Integer, Learned, RoPE, SineCosine, Sinusoidal
from posenc.analysis.shift_matrix import group


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


@pytest.mark.parametrize("dim", [16, 64, 128, 512])
@pytest.mark.parametrize("a", [1, 5])
def test_the_matrix_is_the_rotation_in_as_many_channels_as_models_have(dim, a):
    """M Mᵀ = 1, M moves rows far from those it was fitted to, M_a M_b = M_(a+b)."""
    b = 100
    moves = group(Sinusoidal(dim), a, b)
    for shift, k in ((moves.a, a), (moves.b, b), (moves.both, a + b)):
        matrix = torch.tensor(shift.matrix, dtype=torch.float64)
        one = torch.eye(dim, dtype=torch.float64)
        torch.testing.assert_close(matrix @ matrix.mT, one, rtol=0, atol=1e-5)
        torch.testing.assert_close(matrix, rotation(k, dim), rtol=0, atol=1e-5)
        assert shift.missed < 1e-5
        angle = [p * 10_000 ** (-2 * j / dim) for p in (7, 7 + k) for j in range(dim // 2)]
        rows = torch.tensor([[math.sin(x), math.cos(x)] for x in angle]).double().view(2, dim)
        torch.testing.assert_close(matrix @ rows[0], rows[1], rtol=0, atol=1e-5)
    assert moves.apart < 1e-5


def test_directions_that_no_row_has_stay():
    """Sine and cosine at one frequency fill two dimensions of sixteen."""
    matrix = torch.tensor(group(SineCosine(16), 3, 5).a.matrix)
    torch.testing.assert_close(matrix @ matrix.mT, torch.eye(16), rtol=0, atol=1e-5)
    assert group(SineCosine(16), 3, 5).apart < 1e-5


def test_a_table_is_moved_by_no_matrix_however_few_its_rows():
    """A matrix with as many numbers as rows fits any data, so other rows test the fit."""
    moves = group(Learned(40, 32), 3, 5)
    assert min(moves.a.missed, moves.b.missed, moves.both.missed) > 0.05


def test_what_rope_makes_of_ones_is_moved_by_one_too():
    assert group(RoPE(8), 2, 7).both.missed < 1e-4


@pytest.mark.parametrize("encoding", [Integer(8), Binary(8, bits=8)])
def test_counting_is_moved_by_no_matrix(encoding):
    found = group(encoding, 3, 5, tokens=100)
    assert min(found.a.missed, found.b.missed, found.both.missed) > 0.05


def test_a_bias_has_no_rows_to_move():
    assert group(ALiBi(4), 3, 5) is None
