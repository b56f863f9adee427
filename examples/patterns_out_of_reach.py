"""Patterns of scores that fixed sinusoids cannot produce with any learned weights (source 002).

Scores of places alone are PE(i) M PE(j)ᵀ, with a learned M. Of d channels they have rank d at most,
and for offsets only they are waves of the d/2 frequencies. So a pattern of few waves fits exactly,
while of "the place before" in 256 places, or of "every third from the 100th on", most is lost.
"""

import sys
from pathlib import Path

import torch

from posenc import Sinusoidal
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import heat
from posenc.show.report.drawing.matplotlib import save

PLACES, WIDTH = 256, 32
rows = Sinusoidal(WIDTH)(torch.zeros(1, PLACES, WIDTH))[0].double()
i, j = torch.arange(PLACES)[:, None], torch.arange(PLACES)[None]
patterns = {
    "a wave of one pair": torch.cos((i - j) * 10_000 ** (-4 / WIDTH)).double(),
    "the place before": (i - j == 1).double(),
    "every third place from the 100th on": ((j >= 100) & (j % 3 == 0)).expand(PLACES, -1).double(),
}
inverse = torch.linalg.pinv(rows)
left, panels = {}, []
for name, wanted in patterns.items():
    best = rows @ (inverse @ wanted @ inverse.mT) @ rows.mT
    left[name] = float((best - wanted).norm() / wanted.norm())
    print(f"{name}: {left[name]:.0%} of the pattern cannot be made with {WIDTH} channels")
    for title, pattern in ((name, wanted), (f"the nearest, {left[name]:.0%} missing", best)):
        shown = [row[96:144] for row in pattern[96:144].tolist()]
        panels.append(Panel(title, [heat(shown, signed=True)], y_down=True, square=True))

figure = Figure(
    "Sharp patterns of places are out of reach of sinusoids",
    panels,
    f"Scores of 48 of {PLACES} places with each other: three patterns, and beside each the nearest"
    f" that rows of {WIDTH} channels with any learned matrix give.",
    columns=2,
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
