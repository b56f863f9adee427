"""Positions divided by the text length are bounded, but each position's value depends on the text.

With 1/N (source 004) and 1/(N − 1) ("option 2" of source 003, 1/3 for four tokens), the code of a
position depends on the length of the text, and position 5 of 10 has the code of position 50 of 100.
"""

import sys
from pathlib import Path

import torch

from posenc import Normalized
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line
from posenc.show.report.drawing.matplotlib import save

lengths = (4, 10, 100, 1000)
encoding = Normalized(1, "N-1")
codes = {n: encoding(torch.zeros(1, n, 1))[0, :, 0].tolist() for n in lengths}
for n in lengths:
    print(f"position 1 of {n:,} tokens: {codes[n][1]:.4f}")
same = Normalized(1)(torch.zeros(1, 10, 1))[0, 5, 0].item()
print(f"position 5 of 10 and 50 of 100, with 1/N: {same} and", end=" ")
print(Normalized(1)(torch.zeros(1, 100, 1))[0, 50, 0].item())

marks = [
    Line(range(n), codes[n], f"{n:,} tokens", **style(number)) for number, n in enumerate(lengths)
]
figure = Figure(
    "1/N gives one position another code in every text",
    [Panel("", marks, "position", "code", x_log=False, x_range=(0, 20))],
    f"The code of a position as a share of the length: position 1 is {codes[4][1]:.2f} in a text of"
    f" 4 tokens and {codes[1000][1]:.4f} in one of 1,000.",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
