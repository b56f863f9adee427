"""Words against the numbers that they were made of."""

import pytest

from posenc.show.report import words


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (None, "refused"),
        (3e-7, "same"),
        (0.004, "<1%"),
        (1.2, "120%"),
        (13.0, "13×"),
        (26e3, "26,000×"),
    ],
)
def test_changes_are_told_in_words(share, said):
    assert words.moved(share) == said
