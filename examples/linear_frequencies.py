"""Wavelengths that grow by equal steps put most channels in the last two octaves (source 000).

Source 000 first divides positions by the channel's index and then by powers of 10,000, because with
the first "many dimensions don't convey enough different information". Here both have 512 channels.
With equal steps 175 of the 256 pairs have wavelengths from 512 to 1,608 tokens, and neighbours are
nearly the same wave: 1,602 and 1,608. With powers each octave has 18 to 20 pairs. The rows of 512
positions, as points, need 30 directions for 99 % of their squared length, or 109.
"""

import sys
from pathlib import Path

import torch

from posenc import LinearSinusoidal, Sinusoidal
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line
from posenc.show.report.drawing.matplotlib import save

WIDTH, LENGTHS, OCTAVES = 512, (64, 128, 256, 512, 1024, 2048, 4096), range(2, 16)


def directions(rows: torch.Tensor) -> int:
    """Return the number of directions that hold 99 % of the squared length of all rows."""
    squares = torch.linalg.svdvals(rows) ** 2
    return 1 + int((squares.cumsum(0) < 0.99 * squares.sum()).sum())


scales = {"equal steps": LinearSinusoidal(WIDTH), "powers of 10,000": Sinusoidal(WIDTH)}
needed, pairs, longest = {}, {}, {}
for name, encoding in scales.items():
    rows = encoding(torch.zeros(1, max(LENGTHS), WIDTH))[0].double()
    needed[name] = [directions(rows[:length]) for length in LENGTHS]
    waves = 2 * torch.pi / encoding.freqs
    octave = waves.log2().floor()
    pairs[name] = [int((octave == n).sum()) for n in OCTAVES]
    longest[name] = waves[-2:].tolist()
    print(f"{name}: the two longest waves take", " and ".join(f"{w:,.0f}" for w in longest[name]))
    print(f"  pairs in each octave from 4 tokens on: {pairs[name]}")
    print(f"  directions of the rows of 512 positions: {needed[name][LENGTHS.index(512)]}")

starts = [2.0**n for n in OCTAVES]
figure = Figure(
    "With equal steps most channels show nearly the same wave",
    [
        Panel(title, [Line(x, ys, name, **style(n)) for n, (name, ys) in enumerate(each.items())],
              x_title, y_title, x_log=True)
        for title, x, each, x_title, y_title in (
            ("pairs in an octave", starts, pairs, "wavelength from, tokens", "pairs"),
            ("directions of the rows", LENGTHS, needed, "positions", "directions for 99 %"),
        )
    ],
    f"{WIDTH} channels with wavelengths that grow by equal steps or by equal factors.",
    columns=2,
)  # fmt: skip
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
