"""What the scenes of the story show that no graph of an encoding computes: a text that grows.

The dials are those of `posenc.analysis.dials`, as README draws them; the guide is that of
docs/guide.md, and what training did is that of two registered studies.
"""

from dataclasses import asdict
from math import pi
from typing import TypedDict

from posenc.analysis.dials import by_method
from posenc.encodings.rotary.theta import frequencies
from posenc.show.explorer.trained import Short, short
from posenc.show.report.guide import ALIBI, GUIDE

MODEL, BASE, DIM, TRAINED = "Llama 3", 500_000, 128, 8_192
FACTORS = 1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16
WAYS = {"none": "as trained", "interpolate": "PI", "ntk": "NTK", "yarn": "YaRN"}
DIGITS = 5


class StretchedWay(TypedDict):
    new: list[float]  # share of each pair's circle that is met for the first time
    step: float  # radians that the fastest pair turns from one token to the next


class Length(TypedDict):
    target: int  # tokens
    ways: dict[str, StretchedWay]  # ways by the names of WAYS


class GrowingText(TypedDict):
    """A published rotation over texts that grow."""

    model: str
    base: float
    trained: int  # tokens
    met: list[float]  # share of each pair's circle that training shows
    lengths: list[Length]


class Story(TypedDict):
    growth: GrowingText
    short: Short
    alibi: list[float]  # bits of ALiBi with four heads, reading all and cropped
    guide: list[dict[str, str]]  # the rows of posenc.show.report.guide


def story() -> Story:
    theta = frequencies(DIM, BASE)
    by_length = {n: by_method(theta, TRAINED, n) for n in (int(TRAINED * f) for f in FACTORS)}
    lengths: list[Length] = [
        {
            "target": target,
            "ways": {
                label: {
                    "new": [round(dial.new, DIGITS) for dial in found[name]],
                    "step": 2 * pi / found[name][0].wavelength,
                }
                for name, label in WAYS.items()
            },
        }
        for target, found in by_length.items()
    ]
    met = [round(dial.met, DIGITS) for dial in by_length[TRAINED]["none"]]
    growth = GrowingText(model=MODEL, base=BASE, trained=TRAINED, met=met, lengths=lengths)
    return {
        "growth": growth,
        "short": short(),
        "alibi": [*ALIBI],
        "guide": [asdict(row) for row in GUIDE],
    }
