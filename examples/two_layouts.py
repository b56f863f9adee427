"""Two layouts of rotary pairs: adjacent channels (RoFormer, GPT-J) or halves (Llama).

Both are RoPE, but weights trained for one layout are wrong in the other. The script makes a head
that looks three tokens back, and reads it in both layouts. Converters reorder the rows of W_q and
W_k for the other layout, which gives the same scores.
"""

import sys
from pathlib import Path

import torch

from posenc import RoPE
from posenc.analysis.similarity import turned
from posenc.attention.scores import scores
from posenc.core.positions import sequence
from posenc.models.layouts import permutation
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line
from posenc.show.report.drawing.matplotlib import save

tokens, dim = 40, 64
torch.manual_seed(0)
rope = {layout: RoPE(dim, layout=layout) for layout in ("interleaved", "half")}
q = torch.randn(dim)
k = turned(q, rope["interleaved"].freqs, 3, "interleaved")
order = permutation(dim, dim, "half")  # for each channel in halves, its channel in neighbours


def last_row(q, k, layout):
    q, k = (x.expand(1, 1, tokens, dim) for x in (q, k))
    return scores(rope[layout], q, k, sequence(tokens), sequence(tokens))[0, 0, -1].flip(0)


made = {
    "in its own layout": last_row(q, k, "interleaved"),
    "in the other": last_row(q, k, "half"),
    "in the other, reordered": last_row(q[order], k[order], "half"),
}
best = {name: int(row.argmax()) for name, row in made.items()}
for name, at in best.items():
    print(f"{name}: looks {at} tokens back")

lines = [
    Line(range(tokens), row.tolist(), name, **style(n), width=2 if n else 6)
    for n, (name, row) in enumerate(made.items())
]
figure = Figure(
    "Weights for pairs of neighbours are nonsense for pairs of halves",
    [Panel("", lines, "distance, tokens", "score")],
    f"Scores against distance. In its own layout the head looks {best['in its own layout']} tokens"
    f" back, in the other {best['in the other']}; with channels reordered the curves agree.",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
