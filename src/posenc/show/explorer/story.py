"""Data for the scenes of the explorer's story in which no encoding is computed.

The frequencies of a published rotation before and after each extension, the outcomes of a
registered study, and the guide of docs/guide.md.
"""

from dataclasses import asdict
from typing import TypedDict

from posenc.analysis.frequencies import stretched
from posenc.encodings.rotary.theta import frequencies
from posenc.show.explorer.study_curves import Outcomes, short
from posenc.show.report.guide import GUIDE

MODEL, BASE, DIM, TRAINED, TARGET = "Llama 3", 500_000, 128, 8_192, 131_072
WAYS = {  # methods by their names in `stretched`: the name shown, and the year of publication
    "none": ("as trained", ""),
    "interpolate": ("PI", "2023"),
    "ntk": ("NTK", "2023"),
    "yarn": ("YaRN", "2023"),
}


class StretchedWay(TypedDict):
    name: str
    year: str
    theta: list[float]  # radians per token, pair by pair


class GrowingText(TypedDict):
    """The frequencies of a published RoPE, before and after extension to a longer context."""

    model: str
    base: float
    trained: int  # tokens
    target: int  # tokens
    ways: list[StretchedWay]


class Story(TypedDict):
    growth: GrowingText
    short: Outcomes
    guide: list[dict[str, str]]  # the rows of posenc.show.report.guide


def story() -> Story:
    found = stretched(frequencies(DIM, BASE), TRAINED, TARGET / TRAINED)
    ways: list[StretchedWay] = [
        {
            "name": name,
            "year": year,
            "theta": [float(f"{theta:.15g}") for theta in found[method][0]],
        }
        for method, (name, year) in WAYS.items()
    ]
    growth = GrowingText(model=MODEL, base=BASE, trained=TRAINED, target=TARGET, ways=ways)
    return {"growth": growth, "short": short(), "guide": [asdict(row) for row in GUIDE]}
