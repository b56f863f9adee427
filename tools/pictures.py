"""Draw the pictures of the README, in docs/pictures: encodings.png and dials.png."""

from pathlib import Path

import torch

from posenc.analysis import toy
from posenc.analysis.dials import by_method
from posenc.catalog import create, find
from posenc.encodings.rotary.theta import frequencies
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import heat
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures import rotary

FOLDER = Path(__file__).parent.parent / "docs/pictures"
SHOWN = ("integer", "binary", "sinusoidal", "rope", "xpos", "alibi", "kerple", "fire")
TOKENS = 64
TRAINED, TARGET = 8_192, 131_072  # of the dials, in tokens
USUAL = "none", "interpolate", "ntk", "yarn"


def added(name: str) -> list[list[float]]:
    """What is added to the score of a seeded word for itself at each pair of places, first head."""
    torch.manual_seed(0)
    return toy.added(create(name, toy.DIM, toy.HEADS), [toy.WORD] * TOKENS)[0, 0].tolist()


panels = [
    Panel(find(name).name, [heat(added(name), signed=True, bar=False)], y_down=True, square=True)
    for name in SHOWN
]
figure = Figure("", panels, "What eight encodings add to a score.", columns=4)
found = by_method(frequencies(128, 500_000), TRAINED, TARGET)  # of Llama 3
dials = rotary.dials({name: found[name] for name in USUAL}, TRAINED, TARGET)
if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    save(figure, FOLDER / "encodings.png")
    save(dials, FOLDER / "dials.png")
