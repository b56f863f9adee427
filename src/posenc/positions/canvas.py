"""Position ids of pictures that are cut into slices, by the rule of MiniCPM-V 4.7.

A picture is a thumbnail, followed by slices that show its parts in more detail. All of them are
placed on one canvas of H × W tokens: slices side by side, and the thumbnail scaled to the canvas,
at (s, s + round(row · (H − 1)/(h − 1)), s + round(column · (W − 1)/(w − 1))). Marks have the ids of
the corners of the picture or slice that they enclose. The text continues at s + max(H, W) + 1.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from posenc.positions.grids import Grids

# A mark, the thumbnail and its marks, then each slice after its own mark, 5. A mark before another
# thumbnail belongs to that thumbnail
FRAME = re.compile(r"4(?:1+|2+)(?:4(?![12]))*(?:5(?:1+|2+)(?:4(?![12]))*)*")
CROP = re.compile(r"1+|2+")


def canvas_ids(row: Tensor, grids: Grids) -> Tensor:
    """Return the position ids of one text without padding, (token, 3), by MiniCPM-V's rule."""
    word, start, done = "".join(map(str, row.tolist())), 0, 0
    ids = torch.zeros(len(row), 3, dtype=torch.int64)
    for frame in FRAME.finditer(word):
        text = frame.start() - done
        ids[done : frame.start()] = start + torch.arange(text)[:, None]
        start += text
        start += 1 + _fill_picture(ids[frame.start() : frame.end()], frame.group(), start, grids)
        done = frame.end()
    outside = CROP.search(FRAME.sub(lambda frame: "0" * len(frame.group()), word))
    if outside:
        raise ValueError(
            "`kinds` must have a mark before each picture (4) and before each slice (5), got"
            f" {word[max(outside.start() - 1, 0)]} before token {outside.start()}. Set the kind of"
            " the mark to 4 or 5."
        )
    ids[done:] = start + torch.arange(len(row) - done)[:, None]
    return ids


def _fill_picture(ids: Tensor, word: str, start: int, grids: Grids) -> int:
    """Fill in the position ids of one sliced picture; return the longer side of its grid."""
    crops = [crop.span() for crop in CROP.finditer(word)]
    sizes = [grids.next(int(word[1]), end - first, exactly=True) for first, end in crops]
    (thumb, *slices), columns = sizes, _columns(crops[1:])
    height, width = thumb.h, thumb.w
    if slices:
        height, width = len(slices) // columns * slices[0].h, columns * slices[0].w
    ids[:] = start
    ids[0, 1:] = max(start - 1, 0)
    first, end = crops[0]
    _place(ids[first:end], _evenly_spaced(height, thumb.h), _evenly_spaced(width, thumb.w))
    if end < len(ids):
        ids[end, 1:] += torch.tensor([height, width])
    for number, (size, (first, end)) in enumerate(zip(slices, crops[1:], strict=True)):
        corner = [number // columns * slices[0].h, number % columns * slices[0].w]
        rows, across = torch.arange(size.h) + corner[0], torch.arange(size.w) + corner[1]
        _place(ids[first:end], rows, across)
        ids[first - 1, 1:] += torch.tensor(corner)
        ids[end : end + 1, 1:] += torch.tensor([corner[0] + size.h - 1, corner[1] + size.w - 1])
        if number + 1 < len(slices):
            # Line breaks have the ids of the right edge, in the last row of tokens above
            below = number // columns * slices[0].h + slices[0].h - 1
            breaks = ids[end + 1 : crops[number + 2][0] - 1, 1:]
            breaks += torch.tensor([below, columns * slices[0].w])
    return max(height, width)


def _place(ids: Tensor, rows: Tensor, columns: Tensor) -> None:
    ids[:, 1:] += torch.cartesian_prod(rows, columns)


def _evenly_spaced(size: int, tokens: int) -> Tensor:
    """Return `tokens` evenly spaced integers from 0 to size − 1, the ids of a thumbnail."""
    return torch.linspace(0, size - 1, tokens).round().long()


def _columns(slices: Sequence[tuple[int, int]]) -> int:
    """Return the number of slices in a row of the picture.

    The first line break ends the first row. All slices are in one row if there is no line break,
    or if the rows would have different lengths.
    """
    gaps = [after[0] - before[1] for before, after in pairwise(slices)]
    first = next((number + 1 for number, gap in enumerate(gaps) if gap > 2), len(slices))
    return first if first and len(slices) % first == 0 else len(slices)
