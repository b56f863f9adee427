"""Phrases against their numbers."""

import pytest

from posenc.show.report import phrases


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
    assert phrases.moved(share) == said
