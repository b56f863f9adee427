"""Similarity of sinusoidal positions falls with distance, but not steadily.

Source 003 lists monotonicity among the properties of positional encodings, source 001 calls nearby
positions more similar. Their dot product is a sum of cosines of the distance, so it depends on the
distance alone (source 002 denies that) and is the same forwards and backwards. It first rises 6, 12
or 44 tokens away, and half of all steps rise.
"""

import sys
from dataclasses import replace
from pathlib import Path

from posenc import Sinusoidal, frequencies
from posenc.analysis.similarity import between, of_distance
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.positions import decay

found = {f"d = {dim}": of_distance(frequencies(dim), 4000) for dim in (64, 128, 512)}
rising = {}
for name, waves in found.items():
    steps = zip(waves.similarity[:1000], waves.similarity[1:1001], strict=True)
    rising[name] = sum(b > a for a, b in steps) / 1000
    print(
        f"{name}: first rises at {waves.rises}, is first negative at {waves.negative:,},", end=" "
    )
    print(f"rises at {rising[name]:.0%} of the first 1,000 steps")
dots = between(Sinusoidal(64), 21)
if dots:
    ten, fifteen, twenty = (dots.dot[10][p] for p in (10, 15, 20))
    print(f"position 10 with 10, 15, 20 (d = 64): {ten:.2f}, {fifteen:.2f}, {twenty:.2f}", end=";")
    print(f" with 5 as with 15: {dots.dot[10][5]:.2f}")

figure = replace(decay(found), title="Similarity falls with distance, but half of all steps rise")
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
