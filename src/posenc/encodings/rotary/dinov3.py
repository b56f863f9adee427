"""DINOv3: axial RoPE on coordinates from −1 to 1 across the image, at every resolution.

    angle(p, j) = 2π p_a / period_c,  pair j = a·m + c      p_a ∈ (−1, 1): `positions.centred`
    period_c = base^(c/m),  c = 0 … m − 1                   m = d/4 pairs for each axis

θ is 2π times that of axial RoPE, in radians per half an image. A point of the image has the same
coordinates at every resolution, so a model can be used with a finer grid without training. It does
not receive distances in pixels. So that training does not memorise a few grids, each image is
shifted, stretched and scaled at random: `shift`, `jitter`, `rescale`, in this order.

    RoPE(dinov3(64), layout="half")(q, k, rescale(positions.centred(14, 14), 2.0))

Siméoni et al. 2025, "DINOv3", arXiv:2508.10104, §3.2. The three functions and their order are in
the authors' code; DINOv3 itself uses only `rescale` by 2. There is no card, because cards are
tested at whole positions, and the fastest pair makes a full turn between these.
"""

from math import pi

import torch
from torch import Generator, Tensor

from posenc.core.shapes import Frequencies, Points
from posenc.encodings.rotary.axial import axial
from posenc.support.arguments import real, whole_number


def dinov3(dim: int, base: float = 100.0) -> Frequencies:
    """Return DINOv3's θ of shape (2, pair), for `RoPE(…, layout="half")`.

    >>> dinov3(8).tolist()[1]
    [0.0, 0.0, 6.283185307179586, 0.6283185307179586]
    """
    if whole_number(dim, "dim") < 4 or dim % 4:
        raise ValueError(
            "`dim` must be a multiple of 4, because each of the two axes gets half of the channel"
            f" pairs, got {dim}."
        )
    return 2 * pi * axial(dim, 2, base)


def shift(points: Points, by: float, generator: Generator | None = None) -> Points:
    """Shift the coordinates of each image along each axis by a random number in −`by` … `by`."""
    if not 0 <= real(by, "by") < float("inf"):
        raise ValueError(
            f"`by` must be the largest random shift of the coordinates, at least 0, got {by}."
        )
    return points + by * _uniform(points, points.shape[-1], generator)


def jitter(points: Points, factor: float, generator: Generator | None = None) -> Points:
    """Stretch the coordinates of each image along each axis by a random factor."""
    return points * _growth(factor) ** _uniform(points, points.shape[-1], generator)


def rescale(points: Points, factor: float, generator: Generator | None = None) -> Points:
    """Scale the coordinates of each image by a random factor."""
    return points * _growth(factor) ** _uniform(points, 1, generator)


def _growth(factor: float) -> float:
    if not 1 <= real(factor, "factor") < float("inf"):
        raise ValueError(
            "`factor` must be the largest random factor of the coordinates, at least 1, got"
            f" {factor}."
        )
    return factor


def _uniform(points: Points, axes: int, generator: Generator | None) -> Tensor:
    """Return random numbers in −1 … 1, one per image and axis, shared by all tokens."""
    shape = (*points.shape[:-2], 1, axes)
    made = torch.rand(shape, generator=generator, dtype=torch.float32, device="cpu")
    return (2 * made - 1).to(points.device)
