"""One word's vector at successive positions: with integers, bits, sinusoids, RoPE (source 004).

The vector is a word of the packaged novel, its channels about 1 and around 0. At position 252 an
integer is over two hundred times as large; bits and sinusoids are of its size; RoPE changes no
length at all.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from posenc import Binary, Integer, RoPE, Sinusoidal
from posenc.analysis.text import novel
from posenc.analysis.trajectory import advance
from posenc.show.report.drawing.figure import Figure, Panel, style
from posenc.show.report.drawing.marks import Line
from posenc.show.report.drawing.matplotlib import save

text = novel()
word = text.vectors(16)[text.distinct.index("catherine")]
encodings = {
    "integer": Integer(16),
    "binary": Binary(16, bits=8),
    "sinusoidal": Sinusoidal(16),
    "RoPE": RoPE(16),
}
found = {name: advance(one, word, range(0, 256, 4)) for name, one in encodings.items()}
size = float(word.norm())
ratio = {}
for name, one in found.items():
    placed, before = torch.tensor(one.placed[63]), torch.tensor(one.vector)
    added = 0.0 if one.added is None else float(torch.tensor(one.added[63]).norm())
    ratio[name] = added / size, float(placed.norm()) / size
    cosine = float(torch.cosine_similarity(placed, before, dim=0))
    print(f"{name} at 252: what is added is {ratio[name][0]:.1f} times the word,", end=" ")
    print(f"the result {ratio[name][1]:.2f} times as long, cosine with the word {cosine:.2f}")

lengths = {
    name: (torch.tensor(one.placed).norm(dim=-1) / size).tolist() for name, one in found.items()
}
lines = [
    replace(Line(one.position, lengths[name], name, **style(n)), marker="")
    for n, (name, one) in enumerate(found.items())
]
figure = Figure(
    "Integers outgrow a word; bits and sinusoids do not; RoPE keeps its length",
    [Panel("", lines, "position", "length / that of the word", y_log=True)],
    f"How long a word is with its position, to the word itself, up to position 252: by integers"
    f" {lengths['integer'][-1]:.0f} times, by RoPE {lengths['RoPE'][-1]:.0f}.",
    height=280,
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
