"""Masks and positions of a training run: windows, and random or shuffled positions."""

from random import Random

import torch
from torch import Tensor

from posenc.core.masks import Mask, padding, window
from posenc.lab.study.cell import Cell
from posenc.lab.study.tasks import Batch, Task


def mask_of(cell: Cell, task: Task, batch: Batch) -> Mask | None:
    """Return the window or padding mask of a batch, or None if the batch needs neither.

    The control "window" limits attention to the length of the longest training text. For an
    encoder the padding of shorter texts is masked.
    """
    near = window(task.longest) if cell.control == "window" else None
    if not task.both_ways or min(batch.lengths) == batch.inputs.shape[1]:
        return near
    no_padding = padding(batch.lengths)
    return no_padding if near is None else no_padding & near


def draw_positions(cell: Cell, shape: tuple[int, ...], random: Random) -> Tensor | None:
    """Draw random or shuffled positions for a run, or return None if the run uses neither.

    The shape is (text, token). Random positions are sorted. None means 0, 1, 2, …
    """
    texts, tokens = shape
    if cell.drawn_below is not None:
        if tokens > cell.drawn_below:
            raise ValueError(
                f'`positions` must be "random {tokens}" or a larger number for a text of {tokens}'
                f' tokens, got {cell.positions!r}. Write "random {tokens}".'
            )
        rows = [sorted(random.sample(range(cell.drawn_below), tokens)) for _ in range(texts)]
    elif cell.control == "shuffled":
        rows = [random.sample(range(tokens), tokens) for _ in range(texts)]
    else:
        return None
    return torch.tensor(rows)
