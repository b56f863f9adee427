"""Source 004's rotation matrix [[c, s], [−s, c]] is the transpose of that in its next formula.

The matrix turns by −p, the formula with elementwise products by +p. Either gives scores that depend
on the distance alone, so nobody notices; but keys cached by the one and queries turned by the other
meet at the sum of their positions instead of the difference.
"""

import sys
from pathlib import Path

import torch

from posenc import RoPE, frequencies
from posenc.attention.scores import scores
from posenc.core.positions import sequence
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import heat
from posenc.show.report.drawing.matplotlib import save

tokens, dim = 32, 16
torch.manual_seed(0)
q, k = torch.randn(2, 1, 1, 1, dim).expand(2, 1, 1, tokens, dim)
rope, pos = RoPE(dim), sequence(tokens)
angle = 3 * frequencies(dim).float()
blocks = [torch.tensor([[t.cos(), t.sin()], [-t.sin(), t.cos()]]) for t in angle]
at_3, at_minus_3 = (
    rope.on_queries(q[:, :, :1], rope.prepare(torch.tensor([p])))[0, 0, 0] for p in (3, -3)
)
by_matrix = torch.block_diag(*blocks) @ q[0, 0, 0]
to_formula = float((by_matrix - at_3).abs().max())
to_backwards = float((by_matrix - at_minus_3).abs().max())
print(f"at position 3 the matrix is {to_formula:.2f} off the elementwise formula,", end=" ")
print(f"and {to_backwards:.0e} off that of position −3")

shown, changes = {}, {}
for name, to_q, to_k in (("formula", 1, 1), ("matrix", -1, -1), ("mixed", 1, -1)):
    here, there = (scores(rope, q, k, to_q * p, to_k * p)[0, 0] for p in (pos, pos + 5))
    shown[name], changes[name] = here, float((there - here).abs().max())
    print(f"{name}: moving the text by 5 tokens changes scores by up to {changes[name]:.0e}")

figure = Figure(
    "Mixed with its transpose, a rotation loses the distance",
    [
        Panel(name, [heat(x.tolist(), signed=True)], "key", "query", y_down=True, square=True)
        for name, x in shown.items()
    ],
    "Scores of one query and one key at every pair of positions. Forwards and backwards they run"
    " along one diagonal, by the difference of positions; mixed along the other, by their sum.",
    columns=3,
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
