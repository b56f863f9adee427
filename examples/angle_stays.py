"""RoPE in two dimensions: the angle between two words stays the same wherever the pair stands.

25° a token, as in the text: in the second sentence both words are three tokens further on. A score
is |q| |k| cos(φ + d), with one angle d, for a single pair of channels. For several pairs it is a
sum of these terms, each with its own lengths and angle.
"""

import sys
from dataclasses import replace
from math import radians
from pathlib import Path

import torch

from posenc import RoPE
from posenc.analysis.geometry import turned
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.plane import rotation

sentences = "the mouse ate some cheese", "in the house a cat ate some cheese"
torch.manual_seed(3)
vector = {word: torch.randn(2) for word in " ".join(sentences).split()}
found, angles = {}, {}
for sentence in sentences:
    words = sentence.split()
    one = found[sentence] = turned(words, torch.stack([vector[w] for w in words]), radians(25))
    ate, cheese = words.index("ate"), words.index("cheese")
    angles[sentence] = one.angle(ate, cheese)
    print(f"{sentence!r}: words {ate} and {cheese}, {angles[sentence]:.2f}° apart", end=" ")
    print(f"({one.angle(ate, cheese, after=False):.2f}° before)")

q, k = torch.randn(2, 8)
rope, pos = RoPE(8), torch.tensor([0, 3])
placed_q, placed_k = rope(*(x.expand(1, 1, 2, 8).contiguous() for x in (q, k)), pos)
score = float(placed_q[0, 0, 1] @ placed_k[0, 0, 0])
one_angle = float(q.norm() * k.norm() * torch.cos(torch.acos(q @ k / q.norm() / k.norm()) + 3))
print(f"with four pairs of channels a score is {score:.3f}, |q| |k| cos(φ + 3) is {one_angle:.3f}")

figure = replace(
    rotation(found, ("ate", "cheese")),
    title="Turned by RoPE, two words keep their angle wherever they stand together",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
