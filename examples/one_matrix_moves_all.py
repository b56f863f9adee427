"""One matrix shifts every sinusoidal position by k: PE(p + k) = M_k PE(p), and M_a M_b = M_(a+b).

For channels (sin, cos) the block is [[c, s], [−s, c]], as the sources have it; for (cos, sin) it is
the transpose. Here it is fitted to rows. Source 002's own check, error < 1e-6 with angles in
float32, fails at its k = 50 and 100; in float64 it holds. Integers have no such matrix.
"""

import sys
from dataclasses import replace
from math import cos, sin
from pathlib import Path

import torch

from posenc import Integer, Sinusoidal, frequencies
from posenc.analysis.shift_matrix import group
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.positions import shift

errors = {}
for dtype in (torch.float32, torch.float64):
    theta = frequencies(64).to(dtype)
    for k in (1, 5, 10, 50, 100):
        angle, to = 10 * theta, (10 + k) * theta
        turned = torch.cat(
            (
                angle.sin() * (k * theta).cos() + angle.cos() * (k * theta).sin(),
                angle.cos() * (k * theta).cos() - angle.sin() * (k * theta).sin(),
            )
        )
        errors[dtype, k] = float((torch.cat((to.sin(), to.cos())) - turned).norm())
    said = ", ".join(f"{errors[dtype, k]:.0e} (k = {k})" for k in (1, 5, 10, 50, 100))
    print(f"{dtype}: {said}")
found, none = group(Sinusoidal(8), 3, 4), group(Integer(8), 3, 4)
if found and none:
    block = [row[:2] for row in found.a.matrix[:2]]
    print(f"M₃ begins with {[[round(v, 3) for v in row] for row in block]}", end="; ")
    print(f"cos 3 = {cos(3):.3f}, sin 3 = {sin(3):.3f}")
    print(f"M₃ M₄ and M₇ differ by {found.apart:.0e}; rows are missed by {found.a.missed:.0e}")
    print(
        f"for integers none does: 0 stays 0; the best misses by {none.a.missed * 128.5:.2f} tokens"
    )
    figure = replace(
        shift("Sinusoidal", found), title="One matrix moves all positions: PE(p + k) = Mₖ PE(p)"
    )
    if __name__ == "__main__" and sys.argv[1:]:
        save(figure, Path(sys.argv[1]))
