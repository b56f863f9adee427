"""Words against the numbers that they were made of."""

import pytest

from posenc.report import words


def test_the_verdict_names_names(everything):
    said = dict(line.split(": ", 1) for line in words.verdict(everything))
    assert said["Blind to word order without a mask"] == "NoPE."
    assert said["Refuses positions further along"] == "Learned, xPos."
    assert said["Scores never rise with distance"] == "ALiBi, KERPLE."
    assert "RoPE" in said["The same wherever the text stands, to a million"]
    assert "Sinusoidal" in said["Different further along"]


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (None, "refused"),
        (3e-7, "same"),
        (0.004, "<1%"),
        (1.2, "120%"),
        (13.0, "13×"),
        (26e3, "3e4×"),
    ],
)
def test_changes_are_told_in_words(share, said):
    assert words.moved(share) == said
