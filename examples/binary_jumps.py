"""Binary positions change in jumps, sinusoids gradually (two animations of source 004).

The least significant bit changes every token. The most significant of n bits changes every 2^(n−1)
tokens: that is half its period, which is 2^n. From 127 to 128 all eight bits flip at once.
"""

import sys
from pathlib import Path

import torch

from posenc import Binary, Sinusoidal
from posenc.analysis.trajectory import advance
from posenc.show.report.drawing.figure import Figure, Panel
from posenc.show.report.drawing.marks import Line
from posenc.show.report.drawing.matplotlib import save

bits = Binary(8)(torch.zeros(1, 256, 8))[0].int()
print(f"252 is {''.join(map(str, bits[252].tolist()))}")
changes = [int((bits[1:, channel] != bits[:-1, channel]).sum()) for channel in (0, 7)]
print(
    f"within 256 tokens the most significant bit changes {changes[0]} time, the least {changes[1]}"
)
flips = int((bits[128] != bits[127]).sum())
print(f"from 127 to 128 {flips} bits flip")
steps = {}
for name, encoding in (("binary", Binary(8)), ("sinusoids", Sinusoidal(8))):
    placed = torch.tensor(advance(encoding, torch.zeros(8), range(129)).placed)
    steps[name] = placed.diff(dim=0).norm(dim=-1).tolist()
    print(
        f"{name}: the longest step is {max(steps[name]):.2f}, the shortest {min(steps[name]):.2f}"
    )

figure = Figure(
    "Binary numbers jump where sinusoids walk",
    [
        Panel(
            name,
            [Line(range(1, 129), step)],
            "position",
            "distance from the one before",
            y_range=(0, 3),
        )
        for name, step in steps.items()
    ],
    "How far each position is from the one before, in 8 channels. At 128 all bits flip: √8.",
    columns=2,
    height=230,
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
