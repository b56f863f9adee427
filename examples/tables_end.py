"""A learned table has a last position; a formula does not, but may work badly in longer texts.

Source 001: "position 1025 doesn't exist" in a table of 1,024. Rows count from 0: 1024 is the first
that is missing. Sinusoids and RoPE can be computed anywhere, and RoPE has nothing learned at all,
not "partially". The same window of the packaged novel, moved along: only RoPE makes the same of it.
"""

import sys
from pathlib import Path

import torch

from posenc import Learned, RoPE, SelfAttention, Sinusoidal
from posenc.analysis import length
from posenc.analysis.text import novel
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line, Rule
from posenc.show.report.drawing.matplotlib import save

text, starts = novel(), [1, 10, 100, 960, 10_000, 100_000]
x = text.vectors(64)[text.windows(64, 2)]
torch.manual_seed(0)
made = {"learned": Learned(1024, 64), "sinusoidal": Sinusoidal(64), "RoPE": RoPE(16)}
found, marks = {}, []
for n, (name, encoding) in enumerate(made.items()):
    torch.manual_seed(0)
    found[name] = length.far_changes(SelfAttention(64, 4, encoding), x, starts)
    changes = [far.change for far in found[name]]
    marks.append(Line(starts, changes, name, **style(n)))
    parameters = sum(p.numel() for p in encoding.parameters())
    said = ", ".join("refused" if c is None else f"{c:.1e}" for c in changes)
    print(f"{name}, {parameters:,} parameters: output changes by {said}")
why = length.far_changes(SelfAttention(64, 4, made["learned"]), x[:, :1], [1023, 1024])
print(f"position 1023: {why[0].change:.2f}; position 1024: {why[1].why[:60]} …")

figure = Figure(
    "A learned table ends; sinusoids go on and change, RoPE stays",
    [
        Panel(
            "",
            [*marks, Rule(1024, "x", "end of the table")],
            "where the window begins, tokens",
            "change of the output, share",
            x_log=True,
            y_log=True,
        )
    ],
    "How much attention over a window changes as it moves along. Sinusoids change the output"
    " everywhere, the learned table ends at 1,024, RoPE stays within rounding.",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
