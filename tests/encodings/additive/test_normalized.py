"""Normalized against exact fractions."""

from fractions import Fraction

import pytest
import torch
from refusals import refused

from posenc import Normalized


def code(pos, divisor="N"):
    return Normalized(1, divisor)(torch.zeros(1, len(pos), 1), torch.tensor(pos)).flatten().tolist()


@pytest.mark.parametrize("length", [2, 3, 4, 7, 1000])
def test_is_the_share_of_the_text(length):
    for divisor, by in (("N", length), ("N-1", length - 1)):
        shares = [float(Fraction(p, by)) for p in range(length)]
        assert code(range(length), divisor) == pytest.approx(shares, rel=1e-7)


def test_four_tokens_stand_a_third_apart():
    assert code(range(4), "N-1") == pytest.approx([0, 1 / 3, 2 / 3, 1])


@pytest.mark.parametrize("divisor", ["N", "N-1"])
def test_a_single_token_stands_at_zero(divisor):
    assert code([0], divisor) == [0.0]


@pytest.mark.parametrize("divisor", ["N", "N-1"])
def test_the_same_token_changes_its_code_when_the_text_grows(divisor):
    assert code(range(10), divisor)[5] != code(range(11), divisor)[5]


def test_a_token_stands_where_the_tenfold_position_of_a_tenfold_text_does():
    assert code(range(10))[5] == code(range(100))[50] == 0.5


@pytest.mark.parametrize(("divisor", "largest"), [("N", 1 - 1e-6), ("N-1", 1.0)])
def test_never_exceeds_one(divisor, largest):
    codes = code(range(1_000_000), divisor)
    assert min(codes) == 0
    assert max(codes) == pytest.approx(largest, abs=1e-7)


def test_every_channel_gets_the_same():
    out = Normalized(3)(torch.zeros(1, 2, 3), torch.tensor([0, 1]))
    assert out.tolist() == [[[0.0] * 3, [0.5] * 3]]


def test_each_text_of_a_batch_has_a_length_of_its_own():
    out = Normalized(1)(torch.zeros(2, 4, 1), torch.tensor([[0, 1, 2, 3], [0, 1, 0, 0]]))
    assert out[..., 0].tolist() == [[0, 0.25, 0.5, 0.75], [0, 0.5, 0, 0]]


def test_says_which_divisors_there_are(unchecked):
    with refused(ValueError, "`divisor`", "'N'", "'N-1'", "'n'"):
        Normalized(8, "n")
