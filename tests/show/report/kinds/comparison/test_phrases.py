"""Sentences on a comparison against what the cards promise."""

from posenc.catalog import CATALOG
from posenc.properties import any_length, decaying
from posenc.show.report.kinds.comparison import phrases


def test_the_verdict_names_names(everything):
    """Encodings whose cards promise it, and no others among those without random weights."""
    said = {
        what: set(names.removesuffix(".").split(", "))
        for what, names in (line.split(": ", 1) for line in phrases.verdict(everything))
    }
    assert said[phrases.BLIND_TO_ORDER] == {"NoPE", "RePo"}
    refusing = {card.name for card in CATALOG if any_length not in card.holds}
    ends = said[phrases.ENDS]  # among those that are tried
    assert {"Learned", "xPos"} <= ends == refusing - {"Binary"}  # whose 32 bits go on for longer
    falling = {card.name for card in CATALOG if decaying in card.holds}
    assert {"ALiBi", "KERPLE"} <= falling <= said["Scores only fall with distance"]
    assert not {"NoPE", "RoPE", "Sinusoidal"} & said["Scores only fall with distance"]
    moved = "Output does not change when the whole text is moved (tested to position 1,000,000)"
    assert "RoPE" in said[moved]
    assert "Sinusoidal" in said["Output changes when the whole text is moved"]
