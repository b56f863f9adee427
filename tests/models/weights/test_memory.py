"""Test limits and units of memory against numbers computed by hand."""

import pytest
from refusals import refused

from posenc.models.files.errors import ModelError
from posenc.models.weights.memory import MOST_BYTES, check_memory, format_bytes


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (3 * 2**29, "1.5 GiB"),
        (2**50, "1 PiB"),
        (2**70, "1,048,576 PiB"),
    ],
)
def test_bytes_are_told_in_the_largest_unit_that_fits(count, words):
    expected, unit = words.split()
    number, own_unit = format_bytes(count).split()
    assert own_unit == unit
    assert float(number.replace(",", "")) == pytest.approx(
        float(expected.replace(",", "")), rel=1e-3
    )


def test_what_fits_passes_and_a_byte_more_is_refused():
    check_memory(MOST_BYTES, "config.json", "vocab_size")
    check_memory(10, "config.json", "vocab_size", most=10)
    with refused(ModelError, "a.json", 11, 10):
        check_memory(11, "a.json", "k", most=10, of="of memory")
