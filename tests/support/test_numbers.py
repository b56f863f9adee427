"""Numbers as people write them, against Python's own rounding and read back."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc.support.numbers import RAISED, number

LOWERED = {chr(raised): chr(plain) for plain, raised in RAISED.items()}


def value(text: str) -> float:
    """Parse a formatted number by other code than the one that wrote it."""
    text = text.replace("−", "-").replace(",", "")
    found = re.fullmatch(r"(-?)(?:([\d.]+)·?)?(?:10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?", text)
    assert found, text
    sign, first, power = found.groups()
    return float(f"{sign}{first or 1}e{''.join(LOWERED[c] for c in power or '⁰')}")


@given(st.floats(-1e30, 1e30), st.integers(1, 6))
def test_a_number_reads_back_as_it_was_rounded(wanted: float, digits: int):
    rounded = float(f"{wanted:.{digits - 1}e}")
    assert value(number(wanted, digits)) == pytest.approx(rounded, rel=1e-12, abs=0)


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_no_number_is_written_with_an_e_or_a_hyphen(wanted: float):
    text = number(wanted)
    assert not re.search(r"\de|-", text)
    assert len(text) <= 12


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ((16370.4, 4), "16,370"),
        ((1e6, 3), "1,000,000"),
        ((-2.54e5, 4), "−254,000"),
        ((0.1, 3), "0.1"),
        ((100.0, 3), "100"),
        ((9.999e-5, 3), "0.0001"),
        ((6.4e-8, 1), "6·10⁻⁸"),
        ((9.96e-8, 1), "10⁻⁷"),
        ((-1e-9, 1), "−10⁻⁹"),
        ((0.0, 3), "0"),
        ((math.inf, 3), "∞"),
        ((math.nan, 3), "not a number"),
    ],
)
def test_numbers_in_sentences(wanted: tuple[float, int], text: str):
    assert number(*wanted) == text
