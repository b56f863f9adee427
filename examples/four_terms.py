"""Added positions split each score into four terms (source 002), measured on a sentence.

The terms are content with content, content with position, position with content, and position with
position, for a sentence of the packaged novel and random projections. They sum to the scores; the
shares are those of the input of softmax. As source 002 states, "all four are computed together",
but they can be separated afterwards.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from posenc import SelfAttention, Sinusoidal
from posenc.analysis.decomposition import of_layer
from posenc.analysis.text import novel
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.attention import decomposition

text = novel()
span = text.sentences()[12]
words = text.words[span]
torch.manual_seed(0)
layer = SelfAttention(64, 2, Sinusoidal(64))
for to in (layer.q, layer.k):
    torch.nn.init.normal_(to.weight, std=64**-0.5)
found = of_layer(layer, text.vectors(64)[text.ids[span]].unsqueeze(0))
print(" ".join(words))
for name, share in found.shares.items():
    print(f"{name}: {share:.0%} of the scores, {found.sizes[name]:.2f} logits")
print(f"together: {sum(found.shares.values()):.0%}")

figure = replace(decomposition(found, words), title="Added positions make four kinds of scores")
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
