"""Positions of the patches of an image or video, in the order that a vision model uses.

    rows       row by row, each from left to right
    blocks     blocks of m × m patches, which become one token each, and rows within them
    windows    windows of w × w patches, which do not attend to each other, and blocks within them

A model rotates or adds by the place of a patch in the image, so a list in another order than the
model's own gives every patch the place of another one. Frames of a video follow each other in all
orders. At the right and lower edge, windows are cut off.

Read from `get_vision_position_ids` and `get_vision_window_index` of transformers 5.23.0.
"""

import torch
from torch import Tensor

from posenc.core.positions import grid
from posenc.core.shapes import Points
from posenc.support.arguments import brief, count

ORDERS = "rows", "blocks", "windows"


def patches(*sizes: int, order: str = "rows", merge: int = 1, window: int = 1) -> Points:
    """Return the points of the patches of an image or video in a model's order, (token, axis).

    - `sizes`: rows and columns of patches, or frames, rows and columns, one argument each
    - `order`: "rows", "blocks" or "windows"
    - `merge`: patches along each side of a block, 1 for a model that merges none
    - `window`: patches along each side of a window, a multiple of `merge`

    Raises ValueError if `merge` does not divide rows, columns and window.

    >>> patches(2, 4, order="blocks", merge=2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2], [0, 3], [1, 2], [1, 3]]

    Wang et al. 2024, "Qwen2-VL", arXiv:2409.12191, and Bai et al. 2025, "Qwen2.5-VL",
    arXiv:2502.13923, §2.1.1, in the order of their code.
    """
    if order not in ORDERS:
        raise ValueError(f"`order` must be one of {', '.join(ORDERS)}, got {brief(order)}.")
    points = grid(*sizes)
    if points.shape[-1] not in (2, 3):
        raise ValueError(
            "`sizes` must be rows and columns, or frames, rows and columns, got"
            f" {len(sizes)} sizes."
        )
    if order == "rows":
        return points
    merge, window = count(merge, "merge"), count(window, "window")
    for size, name in ((sizes[-2], "rows"), (sizes[-1], "columns"), (window, "`window`")):
        if size % merge and (order == "windows" or name != "`window`"):
            raise ValueError(
                f"`merge` must divide {name}, got {merge} and {size}. Pass sizes in patches, not"
                " in tokens or pixels."
            )
    sides = [window, merge, 1] if order == "windows" else [merge, 1]
    return points[_sorted(points, sides)]


def _sorted(points: Tensor, sides: list[int]) -> Tensor:
    """Return the order of patches by frame, then by window, then by block.

    Windows, blocks and the patches of a block are each sorted by row, then by column.
    """
    keys = [points[:, axis] // side for side in sides for axis in (-2, -1)]
    keys = [points[:, 0]] * (points.shape[-1] == 3) + keys
    order = torch.arange(len(points))
    # The last sort decides first, so keys are sorted from the least important
    for key in reversed(keys):
        order = order[key[order].argsort(stable=True)]
    return order
