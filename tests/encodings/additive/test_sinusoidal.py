"""Sinusoidal against numpy in float64, transformers' tables, and its theorems."""

import math

import numpy as np
import pytest
import torch
from refusals import refused
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.xlm.modeling_xlm import create_sinusoidal_embeddings

from posenc import Sinusoidal


def rows(pos, dim, **options):
    return Sinusoidal(dim, **options)(torch.zeros(1, len(pos), dim), torch.as_tensor(pos))[0]


def exact(pos, dim, base=10_000.0):
    pe, j = np.zeros((len(pos), dim)), np.arange(dim // 2)
    angle = np.array(pos, dtype=float)[:, None] / base ** (2 * j / dim)
    pe[:, 0::2], pe[:, 1::2] = np.sin(angle), np.cos(angle)
    return pe


@pytest.mark.parametrize("base", [10_000.0, 500.0, 1e6])
@pytest.mark.parametrize("dim", [2, 6, 64, 512])
def test_equals_its_formula_rounded_once(dim, base):
    pos = [0, 1, 2, 511, -40, 10**6]
    made = rows(pos, dim, base=base).double().numpy()
    np.testing.assert_allclose(made, exact(pos, dim, base), rtol=0, atol=3.1e-8)
    half = rows(pos, dim, base=base, layout="half").double().numpy()
    assert (half == np.concatenate((made[:, 0::2], made[:, 1::2]), -1)).all()


def test_equals_the_tables_of_transformers():
    marian = MarianSinusoidalPositionalEmbedding(100, 64).create_weight()
    torch.testing.assert_close(rows(range(100), 64, layout="half"), marian, rtol=0, atol=6e-8)
    xlm = create_sinusoidal_embeddings(100, 64, torch.empty(100, 64))
    torch.testing.assert_close(rows(range(100), 64), xlm, rtol=0, atol=6e-8)


def test_a_shift_is_a_rotation_of_every_pair():
    here, there = rows([9], 8)[0], rows([14], 8)[0]
    for j in range(4):
        c, s = math.cos(5 * 10 ** (-j)), math.sin(5 * 10 ** (-j))
        turned = np.array([[c, s], [-s, c]]) @ here[2 * j : 2 * j + 2].numpy()
        np.testing.assert_allclose(turned, there[2 * j : 2 * j + 2], atol=1e-6)


def test_the_dot_product_is_a_sum_of_cosines_of_the_distance():
    pos = [0, 3, 10, 500]
    dots = (pe := rows(pos, 32).double()) @ pe.T
    for i, p in enumerate(pos):
        for j, q in enumerate(pos):
            cosines = [math.cos((p - q) * 10_000 ** (-2 * n / 32)) for n in range(16)]
            assert dots[i, j].item() == pytest.approx(sum(cosines), abs=1e-6)


def test_the_length_of_a_row_is_the_root_of_half_its_channels():
    norms = rows(range(0, 10**6, 9973), 72).norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, 6.0))


@pytest.mark.parametrize(
    ("dim", "longest"), [(64, 47117), (128, 54410), (256, 58470), (512, 60611)]
)
def test_the_longest_wavelength_stays_below_that_of_the_base(dim, longest):
    wavelength = 2 * math.pi * 10_000 ** ((dim - 2) / dim)
    assert round(wavelength) == longest
    slowest = rows([0, wavelength / 4, wavelength], dim)[:, -2:]
    expected = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    torch.testing.assert_close(slowest, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("dim", "offset"), [(64, 6), (128, 12), (512, 44)])
def test_similarity_first_rises_at(dim, offset):
    pe = rows(range(offset + 1), dim).double()
    steps = (pe @ pe[0]).diff()
    assert (steps[:-1] < 0).all()
    assert steps[-1] > 0


@pytest.mark.parametrize(
    ("dim", "offset", "distance"),
    [
        (2, 710, 6.0e-5),
        (4, 84823, 1.6e-3),
        (64, 1, 1.47),
        (64, 62832, 7.8),
        (128, 62832, 11.6),
        (512, 62832, 23.4),
    ],
)
def test_how_near_two_rows_come(dim, offset, distance):
    zero, far = rows([0, offset], dim)
    assert (far - zero).norm().item() == pytest.approx(distance, rel=0.04)


def test_no_row_is_closer_to_the_first_than_the_second():
    pe = rows(range(70_000), 64)
    assert (pe[1:] - pe[0]).norm(dim=-1).argmin() == 0


def test_says_what_cannot_be(unchecked):
    with refused(ValueError, "`width`", 2, 7):
        Sinusoidal(7)
    with refused(ValueError, "'interleaved'", "'half'", "'halves'"):
        Sinusoidal(8, layout="halves")
    with refused(ValueError, "`base`", -1.0):
        Sinusoidal(8, base=-1.0)
