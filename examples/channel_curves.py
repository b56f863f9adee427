"""Sinusoidal positions: fast and slow channels, and the distance of each position to the first.

Source 002 plots channels 0, 1, 10, 11, 50 and 51 of 128 against the position: pairs of a sine
and a cosine, slower from pair to pair. The distance to position 0, √(2 Σ (1 − cos pθⱼ)), grows
fast at first, and then goes up and down: half of its steps go back.
"""

import sys
from dataclasses import replace
from pathlib import Path

from posenc import Sinusoidal, frequencies
from posenc.analysis.similarity import of_distance
from posenc.show.plot import channels
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.positions import apart

WIDTH, CHOSEN = 128, (0, 1, 10, 11, 50, 51)
curves = channels(Sinusoidal(WIDTH), 100, channels=CHOSEN).figure
found = of_distance(frequencies(WIDTH), 1001)
back = sum(b < a for a, b in zip(found.apart, found.apart[1:], strict=False)) / 1000
print(f"distance to position 0: {found.apart[1]:.2f} at 1, {found.apart[10]:.2f} at 10,", end=" ")
print(f"{found.apart[100]:.2f} at 100; {back:.0%} of the first 1,000 steps go back")

far = apart({f"d = {WIDTH}": found})
figure = replace(
    curves,
    title="Channels are waves, fast and slow; far is not always farther",
    panels=[*curves.panels, *far.panels],
    says=f"{curves.says} {far.says}",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
