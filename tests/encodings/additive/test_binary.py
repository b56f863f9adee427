"""Binary against Python's own binary numbers."""

import pytest
import torch
from refusals import refused

from posenc import Binary


def digits(encoding, pos):
    out = encoding(torch.zeros(1, len(pos), encoding.width), torch.tensor(pos))
    return ["".join(map(str, row)) for row in out[0].int().tolist()]


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 16])
def test_writes_the_position_in_bits(bits):
    pos = range(2**bits)
    assert digits(Binary(bits, bits), pos) == [format(p, f"0{bits}b") for p in pos]


def test_252_is_11111100():
    assert digits(Binary(8), [252]) == ["11111100"]


def test_bits_stretch_over_neighbouring_channels():
    for row, p in zip(digits(Binary(12, bits=4), range(16)), range(16), strict=True):
        assert row == "".join(3 * bit for bit in format(p, "04b"))


def test_the_most_bits_that_fit_the_width_are_taken():
    assert [Binary(dim).bits for dim in (1, 7, 32, 48, 62, 64, 512)] == [1, 7, 32, 24, 31, 32, 32]


def test_large_positions_lose_no_bit():
    last = 2**62 - 1
    assert digits(Binary(62, bits=62), [last, last - 1]) == ["1" * 62, "1" * 61 + "0"]


def test_from_7_to_8_every_bit_flips_and_from_8_to_9_one():
    seven, eight, nine = digits(Binary(4), [7, 8, 9])
    assert sum(a != b for a, b in zip(seven, eight, strict=True)) == 4
    assert sum(a != b for a, b in zip(eight, nine, strict=True)) == 1


def test_a_position_that_needs_more_bits_is_refused():
    with refused(IndexError, 8, 0, 255, "`pos`", 3, 256):
        digits(Binary(8), [3, 256])
    with refused(IndexError, "`pos`", -1):
        digits(Binary(8), [-1])


def test_fractions_are_refused():
    with refused(TypeError, "`pos`", "float32"):
        Binary(8).prepare(torch.tensor([1.5]))


@pytest.mark.parametrize("bits", [0, 3, 63])
def test_says_which_bits_there_can_be(bits):
    with refused(ValueError, 1, 62, "`width`", 8, bits):
        Binary(8, bits)
