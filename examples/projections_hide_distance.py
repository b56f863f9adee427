"""The projections to queries and keys hide the distance that products of sinusoids depend on.

PE(p) · PE(q) is a function of the distance. (PE(p) W_q) · (PE(q) W_k) is not: with random weights,
scores of pairs at the same distance differ by more than the curve falls. RoPE acts after the
projections, so its scores depend on the distance for all weights. In source 002 the model must
learn this.
"""

import sys
from pathlib import Path

import torch

from posenc import RoPE, Sinusoidal
from posenc.attention.scores import scores
from posenc.core.positions import sequence
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line
from posenc.show.report.drawing.matplotlib import save

tokens, dim = 64, 64
torch.manual_seed(0)
rows = Sinusoidal(dim)(torch.zeros(1, tokens, dim))[0]
to_q, to_k = torch.randn(2, dim, dim) * dim**-0.5
word = torch.randn(dim)  # one word everywhere: what differs is position
q, k = (word @ to for to in (to_q, to_k))
rope = scores(RoPE(dim), *(x.expand(1, 1, tokens, dim) for x in (q, k)), *[sequence(tokens)] * 2)
made = {
    "rows of sinusoids": rows @ rows.T,
    "sinusoids, projected": (rows @ to_q) @ (rows @ to_k).T,
    "RoPE, after projection": rope[0, 0],
}
spread, marks = {}, []
for name, products in made.items():
    by_distance = [products.diagonal(-distance) for distance in range(tokens // 2)]
    along = sum(float(found.var(correction=0)) for found in by_distance) / len(by_distance)
    total = float(torch.cat(by_distance).var(correction=0))
    spread[name] = along / total
    print(f"{name}: {spread[name]:.0%} of the variance is between pairs equally far apart")
    first = [float(found[0]) for found in by_distance]
    last = [float(found[-1]) for found in by_distance]
    ends = (
        Line(range(tokens // 2), y, f"{place} pair", **style(n), width=2 if n else 6)
        for n, (place, y) in enumerate((("first", first), ("last", last)))
    )
    marks.append(Panel(name, [*ends], "distance, tokens", "score"))

figure = Figure(
    "Projected to queries and keys, sinusoids lose the distance, RoPE keeps it",
    marks,
    "Scores of the first and of the last pair of tokens so far apart. They agree for sinusoids and"
    f" for RoPE; with sinusoids projected {spread['sinusoids, projected']:.0%} of the variance is"
    " between pairs equally far apart.",
    columns=3,
    height=240,
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
