"""Controls of a study: where the tokens of its texts stand, and how far attention reaches."""

from random import Random

import torch
from torch import Tensor

from posenc.core.masks import Mask, padding, window
from posenc.lab.study.cell import Cell
from posenc.lab.study.tasks import Batch, Task


def mask_of(cell: Cell, task: Task, batch: Batch) -> Mask | None:
    """The mask of a cell beside that of the model itself; None: there is none.

    It is a window as long as the longest text of training, where that is the control; and it hides
    the filling of a text that is read both ways.
    """
    near = window(task.longest) if cell.control == "window" else None
    if not task.both_ways or min(batch.lengths) == batch.inputs.shape[1]:
        return near
    no_filling = padding(batch.lengths)
    return no_filling if near is None else no_filling & near


def oracle_targets(cell: Cell, batch: Batch) -> Tensor | None:
    """The targets that an oracle is given: those of graded places, 0 at the others."""
    return batch.targets * batch.answers if cell.control == "oracle" else None


def draw_positions(cell: Cell, shape: tuple[int, ...], random: Random) -> Tensor | None:
    """Draw positions (text, token): in order below a bound, or mixed; None stands for 0, 1, 2, …"""
    texts, tokens = shape
    if cell.drawn_below is not None:
        if tokens > cell.drawn_below:
            raise ValueError(
                f"`positions` {cell.positions!r} are too few for a text of {tokens} tokens: draw"
                " them from more."
            )
        rows = [sorted(random.sample(range(cell.drawn_below), tokens)) for _ in range(texts)]
    elif cell.control == "shuffled":
        rows = [random.sample(range(tokens), tokens) for _ in range(texts)]
    else:
        return None
    return torch.tensor(rows)
