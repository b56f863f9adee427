"""Interpolate rows of a table of positions, linearly for texts and by cubic splines for grids."""

from math import isqrt, prod

import torch
import torch.nn.functional as F
from torch import Tensor


def along_a_line(rows: Tensor, to: int) -> Tensor:
    """Interpolate a table (row, channel) linearly, so that the result has `to` rows."""
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
            f"`grid` must have {len(rows)} patches, one for each row of the position table after"
            f" the first `kept` rows, got {grid}. Pass the (rows, columns) of the patches, or"
            " another `kept`."
        )
    method = "bicubic, antialiased" if antialias else "bicubic"
    return resized(rows.unflatten(0, grid).float(), to, method).flatten(0, 1).to(rows.dtype)


def resized(cells: Tensor, to: tuple[int, int], method: str) -> Tensor:
    """Interpolate a learned grid, (row, column, channel), to `to` rows and columns of patches.

    - `method`: "bilinear", "bicubic" or "nearest"; "bilinear, corners aligned" maps corner cells to
      corner patches; ", antialiased" averages if the image is smaller; "bilinear, zeros outside"
      reads zeros beyond the edge; ", square" makes a square of the longer side, and crops it;
      ", sides + 0.1" samples as for sides that are a tenth of a patch longer, as DINO's code does;
      "cropped" keeps the first rows and columns, "repeated" tiles; ""
      resizes nothing

    Raises ValueError if the method cannot make this size.
    """
    grid = tuple(cells.shape[:2])
    if grid == to:
        return cells
    if not method or (method == "cropped" and (to[0] > grid[0] or to[1] > grid[1])):
        raise ValueError(
            f"`to` must be {'at most ' * bool(method)}{grid[0]} × {grid[1]} patches, the size of"
            f" the learned grid, got {to[0]} × {to[1]}. Resize the image."
        )
    if method in ("cropped", "repeated"):
        copies = [-(-new // old) for new, old in zip(to, grid, strict=True)]
        return cells.repeat(*copies, 1)[: to[0], : to[1]]
    if method == "bilinear, square":
        longer = max(to)
        return resized(cells, (longer, longer), "bilinear")[: to[0], : to[1]]
    images, (mode, _, how) = cells.permute(2, 0, 1)[None], method.partition(", ")
    if how == "zeros outside":
        places = [(2 * torch.arange(n, device=cells.device) + 1) / n - 1 for n in to]
        row, column = torch.meshgrid(*places, indexing="ij")
        points = torch.stack((column, row), -1)[None].to(cells.dtype)
        new = F.grid_sample(images, points, mode=mode, align_corners=False)
    elif how == "sides + 0.1":
        factors = tuple((n + 0.1) / old for n, old in zip(to, grid, strict=True))
        new = F.interpolate(images, scale_factor=factors, mode=mode)
    else:
        corners = None if mode == "nearest" else how == "corners aligned"
        new = F.interpolate(images, to, mode=mode, align_corners=corners,
                            antialias=how == "antialiased")  # fmt: skip
    return new[0].permute(1, 2, 0)
