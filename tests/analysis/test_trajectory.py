"""Vectors placed one by one: by adding rows, and by complex numbers."""

import cmath

import pytest
import torch
from refusals import refused

from posenc import ALiBi, Binary, RoPE, Sinusoidal, frequencies
from posenc.analysis.trajectory import advance

X = torch.tensor([0.5, -1.0, 2.0, 0.25, 1.5, 0.0, -0.75, 1.0])


def test_what_is_added_is_the_row_of_the_position():
    found = advance(Binary(8, bits=8), X, [0, 5, 252])
    bits = [[float(bit) for bit in f"{p:08b}"] for p in (0, 5, 252)]
    assert found.added == bits
    assert found.placed == [[x + b for x, b in zip(X.tolist(), row, strict=True)] for row in bits]
    assert found.vector == X.tolist()


def test_a_query_is_turned_pair_by_pair():
    found = advance(RoPE(8), X, [0, 3, 1000])
    assert found.added is None
    for p, row in zip(found.position, found.placed, strict=True):
        for pair, theta in enumerate(frequencies(8).tolist()):
            expected = complex(*X[2 * pair : 2 * pair + 2]) * cmath.exp(1j * p * theta)
            assert complex(*row[2 * pair : 2 * pair + 2]) == pytest.approx(expected, abs=1e-5)


def test_binary_numbers_jump_where_sinusoids_move_smoothly():
    """The longest step from a position to the next: √8 where eight bits flip."""
    longest = {
        type(one).__name__: torch.tensor(advance(one, X, range(256)).placed)
        .diff(dim=0)
        .norm(dim=-1)
        .max()
        .item()
        for one in (Binary(8, bits=8), Sinusoidal(8))
    }
    assert longest["Binary"] == pytest.approx(8**0.5)
    assert longest["Sinusoidal"] < 1


def test_a_bias_moves_nothing():
    with refused(ValueError, "ALiBi"):
        advance(ALiBi(4), X, [0, 1])
