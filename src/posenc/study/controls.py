"""Controls of a study: where the tokens of its texts stand, and how far attention reaches."""

from random import Random

import torch
from torch import Tensor

from posenc.core.masks import Mask, window
from posenc.study.cell import Cell
from posenc.study.tasks import Task


def mask_of(cell: Cell, task: Task) -> Mask | None:
    """The reach of attention: as far as the longest text of training, where that is the control."""
    return window(task.longest) if cell.control == "window" else None


def drawn(cell: Cell, shape: tuple[int, ...], random: Random) -> Tensor | None:
    """Positions (text, token): None for 0, 1, 2, …, in order from those below a bound, or mixed."""
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
