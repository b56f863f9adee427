"""Tables made by loops over positions and pairs, and those of transformers, recognised again."""

import math

import pytest
import torch

from posenc.analysis.formula import fit_formula


def made(rows, width, base, layout, sine_first, closed, offset, size=1.0):
    table = torch.zeros(rows, width, dtype=torch.float64)
    pairs = width // 2
    for row in range(rows):
        for j in range(pairs):
            angle = (row + offset) / base ** (j / (pairs - 1 if closed else pairs))
            values = (math.sin(angle), math.cos(angle))
            first, second = values if sine_first else values[::-1]
            at = (j, j + pairs) if layout == "half" else (2 * j, 2 * j + 1)
            table[row, at[0]], table[row, at[1]] = size * first, size * second
    return table


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("offset", [0, 1, 2, 130])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("sine_first", [False, True])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_every_combination_is_recognised(layout, sine_first, closed, offset, dtype):
    for base in (100.0, 10_000.0):
        table = made(60, 64, base, layout, sine_first, closed, offset, size=0.7)
        found = fit_formula(table.to(dtype))
        assert (found.layout, found.sine_first, found.closed) == (layout, sine_first, closed)
        assert (found.base, found.offset, found.empty) == (base, offset, [])
        assert found.size == pytest.approx(0.7, abs=1e-3)
        assert found.residual < {4: 1e-6, 2: 4e-3}[dtype.itemsize]


@pytest.mark.parametrize("closed", [False, True])
def test_of_a_base_that_is_not_round_the_numbers_are_right_and_the_papers_form_is_taken(closed):
    found = fit_formula(made(100, 32, 937.2, "half", True, closed, 0).float())
    exponent = 16 / 15 if closed else 1  # the same numbers, as the other form has it
    assert found.base == pytest.approx(937.2**exponent, rel=1e-5)
    assert not found.closed


def test_fairseqs_table_of_transformers_is_recognised():
    modeling = pytest.importorskip("transformers.models.m2m_100.modeling_m2m_100")
    table = modeling.M2M100SinusoidalPositionalEmbedding(100, 64, padding_idx=1).weights
    found = fit_formula(table)
    assert (found.layout, found.sine_first, found.closed) == ("half", True, True)
    assert (found.base, found.offset, found.empty) == (10_000, 0, [1])


def test_positions_before_the_first_row_are_counted_though_padding_comes_first():
    table = made(80, 64, 10_000.0, "half", True, True, -2)
    table[:2] = 0
    found = fit_formula(table.float())
    assert (found.offset, found.empty) == (-2, [0, 1])


def test_learned_and_random_tables_have_no_formula():
    for seed in range(50):
        torch.manual_seed(seed)
        width = (4, 6, 32, 128)[seed % 4]
        assert fit_formula(torch.randn(8 + seed, width)) is None
        assert fit_formula(torch.randn(64, width).cumsum(0)) is None


def test_a_table_that_only_began_as_a_formula_has_none():
    table = made(100, 64, 10_000.0, "interleaved", True, False, 0).float()
    found = fit_formula(table + 0.01 * torch.randn(100, 64))
    assert (found.base, found.closed, found.offset) == (10_000, False, 0)
    assert fit_formula(table + 0.05 * torch.randn(100, 64)) is None


@pytest.mark.parametrize("shape", [(7, 64), (64, 3), (64, 2), (1, 4), (64, 4)])
def test_what_is_too_small_or_empty_has_no_formula(shape):
    assert fit_formula(torch.zeros(shape)) is None
    assert shape == (64, 4) or fit_formula(torch.ones(shape)) is None


def test_a_few_rows_are_not_enough_as_some_formula_would_fit_them():
    assert fit_formula(made(8, 64, 10_000.0, "half", True, False, 0)) is not None
    assert fit_formula(made(7, 64, 10_000.0, "half", True, False, 0)) is None


def test_rows_none_of_which_are_neighbours_have_no_formula():
    table = made(40, 16, 100.0, "half", True, False, 0)
    table[::2] = 0
    assert fit_formula(table) is None
