"""DINOv3: axial RoPE on coordinates from −1 to 1 across the image, whatever its resolution.

    angle(p, j) = 2π p_a / period_c,  pair j = a·m + c      p_a ∈ (−1, 1): `positions.centred`
    period_c = base^(c/m),  c = 0 … m − 1                   m = d/4 pairs for each axis

As θ it is 2π times axial RoPE's, in radians per half an image. Twice the resolution puts twice the
patches between the same points, so a model need not learn to read a finer grid; how far apart two
patches are in pixels it cannot see. Lest it learn the few grids it is trained on by heart, each
image is moved, stretched and scaled at random: `shift`, `jitter`, `rescale`, one after another.

    RoPE(dinov3(64), layout="half")(q, k, rescale(positions.centred(14, 14), 2.0))

Siméoni et al. 2025, "DINOv3", arXiv:2508.10104, §3.2; the three and their order are in the authors'
code, DINOv3 itself uses `rescale` by 2 alone. Made for fractions, so it has no card: between whole
numbers the fastest pair turns full circle.
"""

from math import pi

import torch
from torch import Generator, Tensor

from posenc.core.shapes import Frequencies, Points
from posenc.encodings.rotary.axial import axial
from posenc.support.arguments import real, whole_number


def dinov3(dim: int, base: float = 100.0) -> Frequencies:
    """θ of shape (2, pair), to be given to `RoPE(…, layout="half")`.

    >>> dinov3(8).tolist()[1]
    [0.0, 0.0, 6.283185307179586, 0.6283185307179586]
    """
    if whole_number(dim, "dim") < 4 or dim % 4:
        raise ValueError(f"both axes take half: `dim` must be a multiple of 4, got {dim}.")
    return 2 * pi * axial(dim, 2, base)


def shift(points: Points, by: float, generator: Generator | None = None) -> Points:
    """Each image moved along each axis, by up to `by` either way."""
    if not 0 <= real(by, "by") < float("inf"):
        raise ValueError(f"`by` is how far an image may move, at least 0, got {by}.")
    return points + by * _uniform(points, points.shape[-1], generator)


def jitter(points: Points, factor: float, generator: Generator | None = None) -> Points:
    """Each image stretched along each axis on its own, by 1/factor … factor."""
    return points * _growth(factor) ** _uniform(points, points.shape[-1], generator)


def rescale(points: Points, factor: float, generator: Generator | None = None) -> Points:
    """Each image scaled as a whole, by 1/factor … factor."""
    return points * _growth(factor) ** _uniform(points, 1, generator)


def _growth(factor: float) -> float:
    if not 1 <= real(factor, "factor") < float("inf"):
        raise ValueError(f"`factor` is the most that an image may grow, at least 1, got {factor}.")
    return factor


def _uniform(points: Points, axes: int, generator: Generator | None) -> Tensor:
    """Numbers in −1 … 1, one for each image and axis: all tokens of an image share theirs."""
    shape = (*points.shape[:-2], 1, axes)
    made = torch.rand(shape, generator=generator, dtype=torch.float32, device="cpu")
    return (2 * made - 1).to(points.device)
