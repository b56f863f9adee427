"""The score between two image patches depends only on their distances in x and in y."""

import torch

from posenc import RoPE, axial
from posenc.attention.scores import scores
from posenc.core.positions import grid

rope = RoPE(axial(64, axes=2))
pos = grid(4, 6)  # 4 rows of 6 patches: points (row, column)
q, k = torch.randn(2, 1, 1, 24, 64)
here = scores(rope, q, k, pos, pos)
there = scores(rope, q, k, pos + torch.tensor([100, -7]), pos + torch.tensor([100, -7]))
print(f"moving the image by (100, -7) changes scores by at most {(there - here).abs().max():.1e}")
across = scores(rope, q, k, pos, pos + torch.tensor([0, 1]))
print(f"moving the keys by a column changes them by up to {(across - here).abs().max():.2f}")
