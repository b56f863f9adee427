"""Binary positions jump between corners of a cube; sinusoids follow a smooth curve (source 004).

Source 004 adds binary positions to a vector of few dimensions and finds the result "very jumpy".
With three bits the positions 0 to 7 are the corners of a cube: from 3 to 4 all three coordinates
change, from 4 to 5 one. Three channels of sinusoids move on a smooth curve by nearly equal steps.
Both are drawn in parallel projection.
"""

import sys
from pathlib import Path

import torch

from posenc import Binary, Sinusoidal
from posenc.show.report.drawing.figure import GREY, VERMILION, Figure, Panel
from posenc.show.report.drawing.marks import Line, Points
from posenc.show.report.drawing.matplotlib import save

ONTO = torch.tensor([[1.0, 0.12], [-0.42, 0.3], [0.0, 1.0]])  # where the three axes point
bits = Binary(3)(torch.zeros(1, 8, 3))[0]
sinusoids = Sinusoidal(4, base=100)
curve = sinusoids(torch.zeros(1, 141, 4), torch.arange(141) / 20)[0, :, :3]
ways = {"binary": (bits, bits), "sinusoids": (curve, curve[::20])}  # the path, positions 0 to 7
edges = [(a, b) for a in range(8) for b in range(a) if (bits[a] - bits[b]).abs().sum() == 1]
steps, panels = {}, []
for name, (path, places) in ways.items():
    steps[name] = places.diff(dim=0).norm(dim=-1).tolist()
    print(f"{name}: steps of {', '.join(f'{step:.2f}' for step in steps[name])}")
    cube = [
        Line(*(bits[[a, b]] @ ONTO).T.tolist(), colour=GREY, dash="dot", width=1)  # type: ignore
        for a, b in edges
    ]
    x, y = (path @ ONTO).T.tolist()
    dots_x, dots_y = (places @ ONTO).T.tolist()
    marks = [
        *(cube if name == "binary" else []),
        Line(x, y),
        Points(dots_x, dots_y, colour=VERMILION, labels=[str(p) for p in range(8)]),
    ]
    panels.append(Panel(name, marks, square=True, bare=True))

figure = Figure(
    "Three bits jump between corners; sinusoids move along a curve",
    panels,
    "Positions 0 to 7 in three channels, in parallel projection. A step of binary numbers is"
    f" {min(steps['binary']):.2f} to {max(steps['binary']):.2f} long, one of sinusoids"
    f" {min(steps['sinusoids']):.2f} to {max(steps['sinusoids']):.2f}.",
    columns=2,
    height=300,
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
