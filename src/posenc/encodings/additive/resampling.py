"""Interpolate rows of a table of positions, linearly for texts and by cubic splines for grids."""

from math import isqrt, prod

import torch.nn.functional as F
from torch import Tensor


def along_a_line(rows: Tensor, to: int) -> Tensor:
    """Interpolate a table linearly to `to` rows, (row, channel)."""
    return F.interpolate(rows.T[None].float(), to, mode="linear")[0].T.to(rows.dtype)


def on_a_grid(
    rows: Tensor, to: tuple[int, int], grid: tuple[int, int] | None, antialias: bool
) -> Tensor:
    """Interpolate a table for the patches of an image to a grid of `to` = (rows, columns) patches.

    `grid` is the present (rows, columns); None: a square. Raises ValueError if the `grid` does not
    have as many cells as there are rows.
    """
    grid = (isqrt(len(rows)), isqrt(len(rows))) if grid is None else grid
    if prod(grid) != len(rows):
        raise ValueError(
            f"`grid` must have {len(rows)} cells, one for each row of the table except the `kept`"
            f" ones, got {grid}. Pass the (rows, columns) of the patches, or another `kept`."
        )
    cells = rows.T.unflatten(-1, grid)[None].float()
    new = F.interpolate(cells, to, mode="bicubic", antialias=antialias)
    return new.flatten(-2)[0].T.to(rows.dtype)
