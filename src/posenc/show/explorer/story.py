"""Data of the explorer's story, for the scenes that do not run an encoding.

The frequencies of a published rotation before and after each extension, the outcomes of a
registered study, and the guide of docs/guide.md. `tools/explorer.py` writes the outcomes from the
study's store, which is not installed, and a test compares them.
"""

import json
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import TypedDict

from posenc.analysis.frequencies import stretched
from posenc.encodings.rotary.theta import frequencies
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


class Trained(TypedDict):
    encoding: str  # name in the catalogue
    curve: dict[str, list[float]]  # by length, for each seed the share of texts that are right


class Outcomes(TypedDict):
    study: str  # name of the study's folder
    trained: int  # L, tokens
    seeds: int
    layers: int
    width: int
    steps: int
    rates: list[float]  # one for all rows, or candidates of which each row used its best
    rows: list[Trained]


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


@cache
def short() -> Outcomes:
    """Read the packaged outcomes of `studies/shape-copy`, which trains on short texts."""
    return json.loads((files("posenc.show.explorer") / "study_curves.json").read_text("utf-8"))
