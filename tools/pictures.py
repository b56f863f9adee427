"""Draw the pictures of the README, in docs/pictures: encodings.png and dials.png."""

from pathlib import Path

import torch

from posenc.analysis.dials import by_method
from posenc.catalog import create, find
from posenc.core.biases import ALL, as_bias
from posenc.encodings.rotary.theta import frequencies
from posenc.report import figures
from posenc.report.drawing.figure import Figure, Panel, heat
from posenc.report.paper import save

FOLDER = Path(__file__).parent.parent / "docs/pictures"
SHOWN = ("integer", "binary", "sinusoidal", "rope", "xpos", "alibi", "kerple", "fire")
TOKENS, DIM = 64, 64
TRAINED, TARGET = 8_192, 131_072  # of the dials, in tokens
USUAL = "none", "interpolate", "ntk", "yarn"


def added(name: str) -> list[list[float]]:
    """Score of a seeded word for itself at each pair of places, less that without an encoding."""
    torch.manual_seed(0)
    encoding = create(name, DIM, 1).double().requires_grad_(False)
    word = torch.randn(1, 1, DIM, dtype=torch.float64).expand(1, TOKENS, DIM)
    pos = torch.arange(TOKENS)
    at, scale = encoding.prepare(pos), encoding.scale(DIM)
    x = encoding.on_embeddings(word, at).unsqueeze(1) if name in SHOWN[:3] else word.unsqueeze(1)
    q, k = encoding.on_queries(x, at), encoding.on_keys(x, at)
    scores = q @ k.mT * scale
    bias = as_bias(encoding.on_scores(q, k, at, at, scale), q, k)
    if bias is not None:
        scores = scores + bias.block(ALL, ALL)
    return (scores - word @ word.mT * scale)[0, 0].tolist()


panels = [
    Panel(find(name).name, [heat(added(name), signed=True, bar=False)], y_down=True, square=True)
    for name in SHOWN
]
figure = Figure("", panels, "What eight encodings add to a score.", columns=4)
found = by_method(frequencies(128, 500_000), TRAINED, TARGET)  # of Llama 3
dials = figures.dials({name: found[name] for name in USUAL}, TRAINED, TARGET)
if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    save(figure, FOLDER / "encodings.png")
    save(dials, FOLDER / "dials.png")
