"""Measure how alike the patches of an image are to a chosen one, by position alone.

    map(y, x) = score of the query at (row, column) with a key of equal content at (y, x), no scale,
                as a share of its score with a key at its own place

The content is a vector of ones, so that of axial RoPE with frequencies θ on each axis the map is
Σⱼ (cos((row − y) θⱼ) + cos((column − x) θⱼ)) / 2n: bands along both axes, and the same map wherever
the chosen patch is. RoPE-Mixed turns by both coordinates at once, and sees slanted bands.

Heo et al. 2024, "Rotary Position Embedding for Vision Transformer", arXiv:2403.13298, §3.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.core.encoding import Encoding
from posenc.core.positions import centred, grid
from posenc.properties.probe import Probe


@dataclass(frozen=True)
class Map:
    """The similarity of all patches to one, a map a head; a single map if heads do not differ."""

    height: int
    width: int
    chosen: tuple[int, int]  # row, column
    heads: list[list[list[float]]]  # (head, row, column)


@torch.no_grad()
def to_patch(
    encoding: Encoding, height: int, width: int, chosen: tuple[int, int], unit: bool = False
) -> Map:
    """Compare all patches with one, by an encoding of two axes; `unit`: −1 … 1, as in DINOv3.

    Raises ValueError for another number of axes, or a patch that is not in the image.
    """
    if encoding.axes != 2:
        raise ValueError(
            f"an image has two axes, rows and columns, and {type(encoding).__name__} here has"
            f" {encoding.axes}: give `RoPE(axial(64, axes=2))`, say, or `Mixed(64, heads=6)`."
        )
    row, column = chosen
    if not (0 <= row < height and 0 <= column < width):
        raise ValueError(f"`chosen` must be in the {height} × {width} patches, got {chosen}.")
    pos = (centred if unit else grid)(height, width)
    probe = Probe(encoding, heads=None if encoding.heads else 1)
    scores: Tensor = probe.alike(pos)[:, row * width + column]
    scores = scores / scores[:, row * width + column].unsqueeze(-1)
    return Map(height, width, chosen, scores.unflatten(-1, (height, width)).tolist())
