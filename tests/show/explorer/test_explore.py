"""The addresses that lead into the explorer, against the states that its page makes of them."""

import re
from pathlib import Path

from javascript import evaluate

from posenc import CATALOG


def test_addresses_of_the_gallery_are_states_of_encodings():
    text = (Path(__file__).parents[3] / "examples" / "README.md").read_text("utf-8")
    addresses = re.findall(r"`(#v1/[^`]*)`", text)
    assert len(addresses) > 12
    states = evaluate(["page/state.js"], "(all) => all.map(fromHash)", addresses)
    slugs = {card.slug for card in CATALOG}
    for address, state in zip(addresses, states, strict=True):
        assert address.split("/")[1] == state["view"]
        assert state["names"]
        assert {*state["names"]} <= slugs
        assert state["n"] == int((re.findall(r"n=(\d+)", address) or [64])[0])
        assert "text=" not in address or "dog" in state["text"]
    assert states[0]["order"] == [2, 1, 0]
