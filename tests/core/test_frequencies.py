"""Frequencies and angles against whole numbers and 50-digit decimals; pairs against slices."""

from decimal import Decimal, localcontext

import pytest
import torch
from refusals import refused

from posenc.core.frequencies import (
    angles,
    for_heads,
    frequencies,
    join,
    refuse_broadcast,
    split,
    theta,
)
from posenc.encodings.rotary.axial import axial


@pytest.mark.parametrize(("dim", "base"), [(2, 10_000.0), (8, 10_000.0), (128, 500_000.0)])
def test_each_is_a_power_of_the_base(dim, base):
    with localcontext(prec=50):
        exact = [float(Decimal(base) ** (Decimal(-2 * j) / dim)) for j in range(dim // 2)]
    found = frequencies(dim, base)
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx(exact, rel=1e-15)
    assert theta(dim).equal(frequencies(dim))
    assert theta(found) is found


@pytest.mark.parametrize("start", [0, 257, 16_777_217, 10**7])
def test_an_angle_is_the_product_rounded_once(start):
    freqs, pos = frequencies(16), torch.arange(start, start + 5)
    found = angles(pos, freqs)
    assert (found.dtype, found.shape) == (torch.float64, (5, 8))
    assert found.tolist() == [[p * f for f in freqs.tolist()] for p in pos.tolist()]


def test_a_point_turns_by_the_sum_over_its_axes():
    freqs, points = axial(8, axes=2), torch.tensor([[3, 5], [0, 7]])
    expected = [
        [x * a + y * b for a, b in zip(*freqs.tolist(), strict=True)] for x, y in points.tolist()
    ]
    torch.testing.assert_close(angles(points, freqs), torch.tensor(expected).double())


def test_pairs_are_neighbours_or_halves():
    x = torch.arange(24.0).view(2, 3, 4)
    first, second = split(x, "interleaved")
    assert first.equal(x[..., 0::2])
    assert second.equal(x[..., 1::2])
    first, second = split(x, "half")
    assert first.equal(x[..., :2])
    assert second.equal(x[..., 2:])
    for layout in ("interleaved", "half"):
        assert join(*split(x, layout), layout).equal(x)


def test_a_table_serves_all_heads_unless_it_has_some():
    assert for_heads(torch.zeros(5, 4)).shape == (1, 5, 4)
    assert for_heads(torch.zeros(2, 5, 4)).shape == (2, 1, 5, 4)
    assert for_heads(torch.zeros(2, 3, 5, 4)).shape == (2, 3, 5, 4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: frequencies(7), ValueError, ["`dim`", 2, 7]),
        (lambda: frequencies(8, -1.0), ValueError, ["`base`", "-1.0"]),
        (lambda: theta(torch.arange(4)), TypeError, ["`freqs`", "float64", "int64"]),
        (lambda: theta(torch.ones(1, 1, 1).double()), ValueError, ["(1, 1, 1)"]),
        (lambda: theta(frequencies(8) / 0), ValueError, ["`freqs`"]),
        (lambda: angles(torch.arange(3), None), TypeError, ["None"]),
        (
            lambda: angles(torch.arange(3), axial(8, axes=2)),
            ValueError,
            [2, "`pos`"],
        ),
        (
            lambda: angles(torch.arange(3), frequencies(8).to("meta")),
            ValueError,
            ["meta"],
        ),
        (lambda: split(torch.zeros(1, 4), "halves"), ValueError, ["`layout`", "'halves'"]),
        (
            lambda: refuse_broadcast(torch.zeros(2, 4, 5, 8), torch.zeros(3, 1, 5, 4)),
            ValueError,
            ["`x`", 5, 2, 3],
        ),
        (
            lambda: refuse_broadcast(torch.zeros(2, 4, 5, 8), torch.zeros(2, 3, 5, 4)),
            ValueError,
            [3, "`x`", 4],
        ),
        (
            lambda: refuse_broadcast(torch.zeros(2, 4, 5, 8), torch.zeros(2, 3, 1, 5, 4)),
            ValueError,
            ["`pos`", "(2, 3, 5)"],
        ),
    ],
)
def test_says_what_does_not_fit(unchecked, call, error, message):
    with refused(error, *message):
        call()
