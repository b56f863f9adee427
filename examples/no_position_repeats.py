"""No two positions have the same sinusoidal vector, not even 63,000 tokens apart.

Source 004 gives 2π · 10,000 unique positions, "an upper bound of ~63,000"; source 000 sees "a
chance of repeating", source 003 has p₀ = p₆. A code could only repeat if pθⱼ were a multiple of 2π
for every pair, which is impossible because π is transcendental. The nearest two codes are those of
neighbours. The length of a text is limited by the lengths of training and the precision of angles.
"""

import math
import sys
from pathlib import Path

import torch

from posenc import frequencies
from posenc.analysis.similarity import of_distance
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line, Rule
from posenc.show.report.drawing.matplotlib import save

print(f"sin 0 = 0 and sin 6 = {math.sin(6):.3f}; the period is {2 * math.pi:.3f}")
print(
    f"sin 2 = {math.sin(2):.5f} and sin 353 = {math.sin(353):.5f}, but cos has another sign:",
    end="",
)
print(f" {math.cos(2):.3f} and {math.cos(353):.3f}")
near, far = {}, {}
lines = []
for n, dim in enumerate((64, 128, 512)):
    apart = torch.tensor(of_distance(frequencies(dim), 200_000).apart)
    nearest = int(apart[1:].argmin()) + 1
    near[dim], far[dim] = float(apart[nearest]), float(apart[62_832])
    print(
        f"d = {dim}: the nearest of 200,000 stands {nearest} token on, {near[dim]:.2f} away;",
        end=" ",
    )
    print(f"62,832 tokens on it is {far[dim]:.1f}")
    x = list(range(0, 200_000, 50))
    lines.append(Line(x, apart[x].tolist(), f"d = {dim}", **{**style(n), "marker": ""}, width=1))

figure = Figure(
    "No code comes back, at 63,000 tokens or anywhere",
    [
        Panel(
            "",
            [*lines, Rule(62_832, "x", "2π · 10,000")],
            "distance, tokens",
            "|PE(δ) − PE(0)|",
        )
    ],
    "Distance of codes over 200,000 tokens. It never comes back to 0: 62,832 tokens on it is"
    f" {far[64]:.1f} for d = 64 and {far[512]:.1f} for d = 512, while neighbours are {near[64]:.1f}"
    f" and {near[512]:.1f} apart.",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
