"""One matrix finds pairs three tokens apart: PE(p)ᵀ M₃ PE(q) is largest where p − q = 3.

M₃ moves a row by three, M₃ PE(q) = PE(q + 3) (sources 001, 002), so the product is that of rows p
and q + 3: Σ cos((p − q − 3) θⱼ), whose largest value, d/2, is at p = q + 3 alone. A model that
learns this matrix in its projections has a head that looks three words back, at any position.
Random rows, fixed once, have no such matrix: one that is fitted to the first does nothing for the
others.
"""

import sys
from pathlib import Path

import torch

from posenc import frequencies
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import heat
from posenc.show.report.drawing.matplotlib import save

DIM, FIRST, SHOWN = 64, 960, 64  # channels, the first of the positions that are tried


def share(scores: torch.Tensor) -> float:
    """Return the share of queries whose largest score is that of the key three tokens before."""
    right = scores.argmax(-1)[3:] == torch.arange(SHOWN - 3)
    return float(right.double().mean())


theta = frequencies(DIM).double()
angles = torch.arange(FIRST, FIRST + SHOWN)[:, None] * theta
rows = torch.cat((angles.sin(), angles.cos()), -1)
c, s = (3 * theta).cos().diag(), (3 * theta).sin().diag()
moves = torch.cat((torch.cat((c, s), -1), torch.cat((-s, c), -1)))  # M₃ of (sines, cosines)
scores = rows @ moves @ rows.T  # (p, q): PE(p)ᵀ M₃ PE(q)

noise = torch.randn(1024, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
fitted = torch.linalg.lstsq(noise[:253], noise[3:256]).solution.T
at_random = share(noise[FIRST:] @ fitted @ noise[FIRST:].T)
print(f"positions {FIRST} to {FIRST + SHOWN - 1}: by sinusoids {share(scores):.0%} of queries find")
print(f"the key three before them, by random rows {at_random:.0%}")

figure = Figure(
    "One matrix makes every token look three back",
    [Panel("", [heat(scores[:32, :32].tolist(), unit="score")], "key", "query", y_down=True)],
    f"Scores of 32 queries and keys, positions from {FIRST} on: the largest of each row is"
    f" {DIM // 2}, three keys before its query.",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
