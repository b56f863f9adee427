"""DyPE: a diffusion model extends its rotations less and less while it removes noise.

A picture larger than in training needs slower rotations while its layout is drawn, and the trained
ones while details are. DyPE blends θ, NTK-aware θ and interpolated θ over two ramps, and multiplies
the turns at the ends of both ramps by κ(t) = t², where the noise level t falls from 1 to 0:

    θ' = γ θ + (1 − γ) (β θ_ntk + (1 − β) θ / s)     γ from 16 κ to 2 κ turns, β from 1.25 κ to ¾ κ

Issachar et al. 2025, arXiv:2510.20766; guyyariv/DyPE, flux/transformer_flux.py at 436fe61. The
README of its authors says "patent pending", so this is an example and no part of the library.
"""

import sys
from pathlib import Path

from posenc import frequencies
from posenc.encodings.rotary.extension import interpolate, ntk, yarn
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import Line
from posenc.show.report.drawing.matplotlib import save

DIM, TRAINED = 56, 64  # rotated channels for each axis of FLUX.1, and patches along a side
LEVELS = (1.0, 0.5, 0.25, 0.125)


def dype(theta, factor, trained, t):
    """Return θ at noise level t, for a picture with `factor` times as many patches per side."""
    slow, level = interpolate(theta, factor), t**2

    def kept(fast, slowest):
        """Return YaRN's ramp: 1 for rotary pairs with unchanged θ, 0 for interpolated ones."""
        ends = yarn(theta, factor, trained, fast * level, slowest * level)
        return (ends - slow) / (theta - slow)

    mixed = slow + kept(1.25, 0.75) * (ntk(theta, factor) - slow)
    return mixed + kept(16, 2) * (theta - mixed)


theta = frequencies(DIM)
ratios = {t: theta / dype(theta, 4.0, TRAINED, t) for t in LEVELS}
for t, ratio in ratios.items():
    print(f"noise {t:5}: {int((ratio < 1.001).sum())} of {len(theta)} pairs turn as in training")

lines = [Line(range(len(theta)), ratio.tolist(), f"t = {t}") for t, ratio in ratios.items()]
figure = Figure(
    "As the noise falls, more pairs turn as in training",
    [Panel("", lines, "pair, fastest first", "θ / θ′")],
    "Trained on 64 patches a side, used for 256. θ′ is up to 4 times slower at the first step.",
)

if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
