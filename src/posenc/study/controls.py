"""Controls of a study: where the tokens of its texts stand, and how far attention reaches."""

from random import Random

import torch
from torch import Tensor

from posenc.core.masks import Mask, padding, window
from posenc.study.cell import Cell
from posenc.study.tasks import Batch, Task


def mask_of(cell: Cell, task: Task, batch: Batch) -> Mask | None:
    """What a token may see beside what the model itself forbids; None: all of it.

    A window as long as the longest text of training, where that is the control; no filling, in a
    text that is read both ways.
    """
    near = window(task.longest) if cell.control == "window" else None
    if not task.both_ways or min(batch.lengths) == batch.inputs.shape[1]:
        return near
    whole = padding(batch.lengths)
    return whole if near is None else whole & near


def told(cell: Cell, batch: Batch) -> Tensor | None:
    """What an oracle says: the targets of those places that are graded, nothing at the others."""
    return batch.targets * batch.answers if cell.control == "oracle" else None


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
