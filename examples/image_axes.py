"""RoPE on images needs separate pairs for each axis, or it confuses rows and columns (source 004).

A pair that turns by row + column does not distinguish a patch further down from one further right.
Axial RoPE gives half of the pairs to each axis, so the map of similarity to a patch is the same
around every patch. RoPE-Mixed turns each pair by both axes, along its own direction.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from posenc import Mixed, RoPE, axial, frequencies
from posenc.analysis.grids import to_patch
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.plane import grids

size, chosen = 15, (7, 7)
torch.manual_seed(2)
maps = {
    "row + column in one pair": to_patch(
        RoPE(torch.stack([frequencies(32)] * 2)), size, size, chosen
    ),
    "axial": to_patch(RoPE(axial(32, 2, base=100.0)), size, size, chosen),
    "mixed, one of its heads": to_patch(Mixed(32, heads=2), size, size, chosen),
}
diagonal, mirrored = {}, {}
for name, found in maps.items():
    here = torch.tensor(found.heads[0])
    diagonal[name], mirrored[name] = float(here[5, 9]), float((here - here.flip(0)).abs().max())
    print(f"{name}: two up and two to the right is {diagonal[name]:.2f} alike;", end=" ")
    print(f"mirrored from top to bottom the map changes by {mirrored[name]:.2f}")
image = torch.tensor(maps["axial"].heads[0])
moved = torch.tensor(to_patch(RoPE(axial(32, 2, base=100.0)), size, size, (9, 10)).heads[0])
change = float((moved[2:, 3:] - image[:-2, :-3]).abs().max())
print(f"around another patch the axial map differs by {change:.0e}")

figure = replace(grids(maps), title="Rows and columns of an image must not share a pair")
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
