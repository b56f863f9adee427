"""Attention without positions is permutation-equivariant, not invariant as sources 001, 003 state.

"man bites dog" has the weights of "dog bites man", moved with the words, so a model cannot know who
bit whom. The outputs are not the same at each position; they move with the words. With a causal
mask they also change. Words are random vectors as in the text, with its printed numbers.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from posenc import NoPE, attend, masks
from posenc.show.report.drawing.matplotlib import save
from posenc.show.report.figures.attention import attention

words = ["dog", "bites", "man"]
np.random.seed(42)
x = torch.tensor(np.stack([np.random.randn(8) for _ in words]))[None, None]
backwards = [2, 1, 0]


def weights(x, mask=None):
    """Return the attention weights, as the output of attention whose v is the identity matrix."""
    return attend(x, x, torch.eye(3, dtype=x.dtype)[None, None], NoPE(), mask=mask)[0, 0]


first, second = weights(x), weights(x[:, :, backwards])
moved = second[backwards][:, backwards]
equivariant = float((moved - first).abs().max())
invariant = float((second - first).abs().max())
causal, causal_second = weights(x, masks.causal()), weights(x[:, :, backwards], masks.causal())
with_mask = float((causal_second - causal[backwards][:, backwards]).abs().max())
print("dog bites man:", [[round(w, 3) for w in row] for row in first.tolist()])
print("man bites dog:", [[round(w, 3) for w in row] for row in second.tolist()])
print(f"put in the same order they differ by {equivariant:.0e}: equivariant")
print(f"left where they are they differ by {invariant:.2f}: not invariant")
print(f"with a causal mask they differ by {with_mask:.2f}, put in order or not")

figure = replace(
    attention(
        [first.tolist(), moved.tolist()], words, ["dog bites man", "man bites dog, put in order"]
    ),
    title="Attention without positions moves with its words: it is permutation-equivariant",
)
if __name__ == "__main__" and sys.argv[1:]:
    save(figure, Path(sys.argv[1]))
