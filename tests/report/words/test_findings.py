"""Words against the numbers that they were made of."""

import pytest

from posenc.catalog import CATALOG
from posenc.properties import any_length, decaying
from posenc.report import words


def test_the_verdict_names_names(everything):
    """Those whose cards promise it; that they are no others, for what has no random weights."""
    said = {
        what: set(names.removesuffix(".").split(", "))
        for what, names in (line.split(": ", 1) for line in words.verdict(everything))
    }
    assert said["Blind to word order without a mask"] == {"NoPE"}
    refusing = {card.name for card in CATALOG if any_length not in card.holds}
    assert {"Learned", "xPos"} <= refusing == said["Refuses positions further along"]
    falling = {card.name for card in CATALOG if decaying in card.holds}
    assert {"ALiBi", "KERPLE"} <= falling <= said["Scores never rise with distance"]
    assert not {"NoPE", "RoPE", "Sinusoidal"} & said["Scores never rise with distance"]
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
