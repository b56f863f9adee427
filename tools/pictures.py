"""Draw docs/pictures/encodings.png: what eight encodings add to the scores."""

from pathlib import Path

import torch

from posenc.analysis import toy
from posenc.catalog import create, find
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import heat
from posenc.show.report.drawing.matplotlib import save

FOLDER = Path(__file__).parent.parent / "docs/pictures"
SHOWN = ("integer", "binary", "sinusoidal", "rope", "xpos", "alibi", "kerple", "fire")
TOKENS = 64


def added(name: str) -> list[list[float]]:
    """Return what an encoding adds to the first head's scores, for a text of one repeated word."""
    torch.manual_seed(0)
    return toy.added(create(name, toy.DIM, toy.HEADS), [toy.WORD] * TOKENS)[0, 0].tolist()


panels = [
    Panel(find(name).name, [heat(added(name), signed=True, bar=False)], y_down=True, square=True)
    for name in SHOWN
]
figure = Figure("", panels, "What eight encodings add to a score.", columns=4)
if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    save(figure, FOLDER / "encodings.png")
