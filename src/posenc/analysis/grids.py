"""Compute the similarity of each image patch to a chosen patch, from positions alone.

    map(y, x) = score of the query at (row, column) with a key of equal content at (y, x), no scale,
                divided by its score with a key at (row, column)

The content is a vector of ones. For axial RoPE with frequencies θ on each axis the map is
Σⱼ (cos((row − y) θⱼ) + cos((column − x) θⱼ)) / 2n, with bands along both axes, and it depends only
on the offset from the chosen patch. RoPE-Mixed rotates by both coordinates together and has
diagonal bands.

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
    """The similarity of every patch of an image to a chosen patch, one map per head.

    There is a single map if all heads are equal.
    """

    height: int
    width: int
    chosen: tuple[int, int]  # row, column
    heads: list[list[list[float]]]  # (head, row, column)


@torch.no_grad()
def to_patch(
    encoding: Encoding, height: int, width: int, chosen: tuple[int, int], unit: bool = False
) -> Map:
    """Return the similarity of every patch of an image to the `chosen` patch.

    All patches have equal content, so the similarity depends on the encoding alone.

    `unit`: coordinates from −1 to 1, as in DINOv3, instead of rows and columns. Raises ValueError
    for another number of axes, or a patch outside of the image.
    """
    if encoding.axes != 2:
        raise ValueError(
            f"`encoding` must have two axes, rows and columns, got"
            f" {type(encoding).__name__} with {encoding.axes}. Pass `RoPE(axial(64, axes=2))` or"
            " `Mixed(64, heads=6)`, for instance."
        )
    row, column = chosen
    if not (0 <= row < height and 0 <= column < width):
        raise ValueError(f"`chosen` must be one of the {height} × {width} patches, got {chosen}.")
    pos = (centred if unit else grid)(height, width)
    probe = Probe(encoding, heads=None if encoding.heads else 1)
    scores: Tensor = probe.alike(pos)[:, row * width + column]
    scores = scores / scores[:, row * width + column].unsqueeze(-1)
    return Map(height, width, chosen, scores.unflatten(-1, (height, width)).tolist())
