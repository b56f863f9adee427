"""Text for people: Unicode's own categories, and values as one would type them."""

import unicodedata

import pytest

from posenc.support.text import printable, shown


def test_no_mark_of_control_or_direction_is_printed():
    for number in (*range(0x300), *range(0x2000, 0x2100), 0xFEFF, 0xE0001):
        text = printable(chr(number))
        unsafe = unicodedata.category(chr(number)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        assert text.isprintable()
        assert (
            text.startswith("\\") == (unsafe or (number == 0x5C)) or not chr(number).isprintable()
        )


@pytest.mark.parametrize("length", [79, 80, 81, 10**6])
def test_long_text_is_cut(length):
    text = printable("a" * length)
    assert len(text) == min(length, 80)
    assert text.endswith("…") == (length > 80)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("a", "'a'"),
        ([1, None, True], "[1, None, True]"),
        ([0] * 9, "a list of 9"),
        ({str(n): n for n in range(9)}, "an object of 9"),
        (2**5000, "a whole number of 5001 bits"),
    ],
    ids=["text", "list", "long list", "object", "whole number"],
)
def test_values_are_shown_as_they_would_be_typed(value, words):
    assert shown(value) == words
