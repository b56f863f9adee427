"""Concatenated positions enter the next projection as a sum, like added ones: x W₁ + p W₂.

Source 003 would put positions beside words, source 000 adds them to save channels. The next
projection turns (x ; p) into x W₁ + p W₂, and x + p into x W + p W. So concatenation gives
positions a projection of their own, and costs more channels and weights. With enough channels for
both, a linear map can separate the sum again: here for 40 random words and the rows of 64
positions.
"""

import sys
from pathlib import Path

import torch

from posenc import Sinusoidal
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line
from posenc.show.report.drawing.matplotlib import save

WORDS, TOKENS, WIDTHS = 40, 64, (16, 24, 32, 40, 48, 56, 64, 72, 80)


def parted(width: int) -> float:
    """Return the share of the positions' variance that a linear map recovers from x + p."""
    words = torch.randn(WORDS, width, generator=torch.Generator().manual_seed(0)).double()
    rows = Sinusoidal(width)(torch.zeros(1, TOKENS, width))[0].double()
    both = (words[:, None] + rows).flatten(0, 1)
    wanted = rows.expand(WORDS, TOKENS, width).flatten(0, 1)
    ones = torch.ones(len(both), 1, dtype=torch.float64)
    found = torch.cat((both, ones), 1)
    left = wanted - found @ torch.linalg.pinv(found) @ wanted
    return 1 - float(left.square().sum() / (wanted - wanted.mean(0)).square().sum())


x, p = torch.randn(2, 5, 64, dtype=torch.float64)
w = torch.randn(128, 32, dtype=torch.float64)
differ = (torch.cat((x, p), -1) @ w - (x @ w[:64] + p @ w[64:])).abs().max().item()
print(f"(x ; p) W and x W₁ + p W₂ differ by {differ:.0e}")
shares = {width: parted(width) for width in WIDTHS}
for width, share in shares.items():
    print(f"{width} channels: {share:.1%} of the positions' rows can be had from the sum")

sides = {"added": [*shares.values()], "side by side": [1.0] * len(WIDTHS)}
lines = [Line(WIDTHS, y, name, **style(n)) for n, (name, y) in enumerate(sides.items())]
figure = Figure(
    "Concatenated positions are added ones, with a projection of their own",
    [Panel("", lines, "channels", "share of the rows that is found")],
    f"What a linear map finds of {TOKENS} positions in the sum with {WORDS} words:"
    f" {shares[16]:.0%} with 16 channels, {shares[80]:.0%} with 80; side by side all.",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
