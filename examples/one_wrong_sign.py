"""A sign error in source 003's RoPE: (−x_(d−1), x_d) must be (−x_d, x_(d−1)) for the last pair.

With the misprint the last pair is not rotated but stretched: lengths change with position, and so
do scores of equal distance. It is one pair of many, so the error is easily missed.
"""

import sys
from pathlib import Path

import torch

from posenc import RoPE, frequencies
from posenc.core.positions import sequence
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line
from posenc.show.report.drawing.matplotlib import save

tokens, dim = 64, 8
torch.manual_seed(0)
x = torch.randn(dim)
theta = frequencies(dim, base=10.0).float()  # so that the last pair turns visibly
angle = (sequence(tokens)[:, None] * theta).repeat_interleave(2, -1)
right = torch.stack((-x[1::2], x[::2]), -1).flatten()
printed = torch.cat((right[:-2], -x[-2:-1], x[-1:]))
made = {
    "(−x_d, x_(d−1))": x * angle.cos() + right * angle.sin(),
    "as printed": x * angle.cos() + printed * angle.sin(),
}
ours = RoPE(frequencies(dim, base=10.0))(*[x.expand(1, 1, tokens, dim).contiguous()] * 2)[0][0, 0]
norms = {name: (rows.norm(dim=-1) / x.norm()).tolist() for name, rows in made.items()}
for name, rows in made.items():
    print(f"{name}: differs from RoPE by {(rows - ours).abs().max():.0e},", end=" ")
    print(f"lengths between {min(norms[name]):.3f} and {max(norms[name]):.3f}")

figure = Figure(
    "One wrong sign in the fast form stretches the last pair",
    [
        Panel(
            "",
            [Line(range(tokens), y, name, **style(n)) for n, (name, y) in enumerate(norms.items())],
            "position",
            "length, to that at position 0",
        )
    ],
    "A vector turned by RoPE keeps its length. With the printed sign it varies with position, from"
    f" {min(norms['as printed']):.2f} to {max(norms['as printed']):.2f} of what it was.",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
