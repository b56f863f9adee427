"""Position vectors as a heat map, as in sources 001 and 002, with the numbers that these print.

Fast pairs of channels oscillate, slow ones hardly change. RoPE adds no rows, so the picture shows a
vector of ones that it rotates.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from posenc import RoPE, Sinusoidal
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.positions import encoding

small = Sinusoidal(8)(torch.zeros(1, 10, 8))[0]
for position in (0, 1, 9):
    print(f"PE({position}) = {[round(v, 3) for v in small[position].tolist()]}")
rows = Sinusoidal(64)(torch.zeros(1, 100, 64))[0]
norms = rows.norm(dim=-1)
print(
    f"values between {rows.min():.3f} and {rows.max():.3f}; every row is {norms[0]:.4f} long,",
    end=" ",
)
print(f"√(d/2) = {32**0.5:.4f} exactly, not approximately as in source 002")
spread = float(norms.max() - norms.min())
ones = torch.ones(1, 1, 100, 64)
turned = RoPE(64)(ones, ones)[0][0, 0]

both = [encoding(name, x.tolist()) for name, x in (("Sinusoidal", rows), ("RoPE, of ones", turned))]
panels = [
    replace(f.panels[0], title=name) for f, name in zip(both, ("added", "turned"), strict=True)
]
figure = replace(
    both[0],
    title="Each code of a position is √(d/2) long, exactly",
    panels=panels,
    columns=2,
    says=" ".join(one.says for one in both),
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
