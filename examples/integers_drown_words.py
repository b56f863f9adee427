"""Adding the position as an integer hides what words mean (scatter plots of source 000).

With integers added, the axis along which the words of a sentence vary most is little but their
order; sinusoids leave most words beside the same neighbour. The picture: forty words, five groups.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from posenc import Integer, Sinusoidal
from posenc.analysis.clouds import clouds
from posenc.analysis.text import novel
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures import plane as figures


def nearest(x):
    """Return the index of the nearest other word of each word."""
    return torch.cdist(x, x).fill_diagonal_(torch.inf).argmin(-1)


def ordered(x):
    """Return the |correlation| of the axis of most variance with the order of the words."""
    u, _, _ = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    return torch.corrcoef(torch.stack((u[:, 0], torch.arange(len(x)))))[0, 1].abs().item()


text = novel()
span = text.sentences(shortest=20)[3]
words, x = text.words[span], text.vectors(128)[text.ids[span]]
encodings = {"integers": Integer(128), "sinusoids": Sinusoidal(128)}
placed = {name: encoding(x, torch.arange(len(x))) for name, encoding in encodings.items()}
kept = {name: (nearest(y) == nearest(x)).float().mean().item() for name, y in placed.items()}
order = {name: ordered(y) for name, y in placed.items()}
print(" ".join(words))
for name in encodings:
    print(
        f"{name}: {kept[name]:.0%} of the words keep their nearest neighbour; the first axis"
        f" follows their order with a correlation of {order[name]:.2f} ({ordered(x):.2f} before)"
    )

grouped = {name: clouds(text, text.vectors(128), encoding) for name, encoding in encodings.items()}
figure = replace(figures.clouds(grouped), title="Integers drown what words mean, sinusoids do not")
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
