"""The wavelengths of sinusoids: for every width, the table in source 002 is wrong.

λⱼ = 2π · 10000^(2j/d) for j = 0 … d/2 − 1: the last exponent is (d − 2)/d, not 1. "From 2π to 10000
· 2π", in the paper itself, is loose too. The table's row "192-193: 1,580" would be 6,283 tokens.
"""

import sys
from math import pi
from pathlib import Path

from posenc import frequencies
from posenc.show.report.drawing.figure import VERMILION, Figure, Panel, style
from posenc.show.report.drawing.marks import Line, Points, Rule
from posenc.show.report.drawing.matplotlib import save

waves = {d: [2 * pi / theta for theta in frequencies(d).tolist()] for d in (64, 128, 256, 512)}
table = {0: 6.3, 64: 40, 128: 250, 192: 1580, 254: 62832}  # channel: tokens, as printed
for channel, printed in table.items():
    right = " ".join(f"{waves[d][channel // 2]:,.4g} (d = {d})" for d in (256, 512))
    print(f"channels {channel}-{channel + 1}: printed {printed:,}, right {right}")
longest = {d: round(max(waves[d])) for d in waves}
print("the longest:", ", ".join(f"{value:,} (d = {d})" for d, value in longest.items()))

lines = [
    Line([2 * j for j in range(d // 2)], waves[d], f"d = {d}", **{**style(n), "marker": ""})
    for n, d in enumerate(waves)
]
dots = Points(list(table), list(table.values()), "as printed", VERMILION, "x")
figure = Figure(
    "The printed wavelengths fit no width, and none is 62,832 tokens",
    [
        Panel(
            "",
            [*lines, dots, Rule(2e4 * pi, "y", "2π · 10,000")],
            "channel",
            "wavelength, tokens",
            y_log=True,
        )
    ],
    "Wavelengths grow evenly on a logarithmic scale and end below 62,832 tokens, at"
    f" {', '.join(f'{value:,} for d = {d}' for d, value in longest.items())}. No line goes"
    " through the printed table.",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
