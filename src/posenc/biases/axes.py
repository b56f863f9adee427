"""Pack the coordinates of a point into one integer, so that `DistanceBias` works for images.

    line(p) = Σ_a p_a · 2^(b (n − 1 − a)),      b = ⌊62/n⌋ bits for each of n axes

The difference of two such numbers determines the offset along each axis, as long as all offsets are
below 2^(b−1): a billion cells for two axes, half a million for three.
"""

import torch
from torch import Tensor

from posenc.core.positions import whole
from posenc.core.shapes import Points, Positions
from posenc.support.arguments import brief, count


def on_a_line(points: Points, name: str) -> Positions:
    """Pack the coordinates of each point into one integer, (*batch, token).

    - `points`: whole numbers, (*batch, token, axis)
    - `name`: name of the encoding, for the error message of fractions
    """
    strides = [2 ** _exponent(points.shape[-1], axis) for axis in range(points.shape[-1])]
    return (whole(points, name) * torch.tensor(strides, device=points.device)).sum(-1)


def along_axes(apart: Tensor, axes: int) -> list[Tensor]:
    """Unpack the difference of two packed points into the offset along each axis."""
    offsets = []
    for axis in range(axes - 1):
        stride = 2 ** _exponent(axes, axis)
        # The offsets along the other axes add less than half a stride
        offset = torch.div(apart + stride // 2, stride, rounding_mode="floor")
        offsets.append(offset)
        apart = apart - offset * stride
    return [*offsets, apart]


def sides_of(window: int | tuple[int, int], name: str) -> tuple[int, int]:
    """Check the size of a window of patches, and return its numbers of rows and columns."""
    sides = window if isinstance(window, tuple) else (window, window)
    if len(sides) != 2:
        raise ValueError(f"`{name}` must be one number or (rows, columns), got {brief(window)}.")
    rows, columns = (count(side, name, most=2**12) for side in sides)
    return rows, columns


def cell(apart: Tensor, sides: tuple[int, int]) -> Tensor:
    """Return each offset's index in a flat table of all offsets in a window of patches.

    - `apart`: differences of two numbers of `on_a_line`
    - `sides`: rows and columns of the window, M; offsets beyond ±(M − 1) are clamped
    """
    offsets = along_axes(apart, 2)
    row, column = (Δ.clamp(1 - m, m - 1) + m - 1 for Δ, m in zip(offsets, sides, strict=True))
    return row * (2 * sides[1] - 1) + column


def _exponent(axes: int, axis: int) -> int:
    return 62 // axes * (axes - 1 - axis)
