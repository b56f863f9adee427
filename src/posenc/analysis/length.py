"""Measure how the output of attention changes when a window of text starts at a far position.

    change = | layer(x at start …) − layer(x at 0 …) | / | layer(x at 0 …) |

0 for a relative encoding, up to rounding. An absolute one changes, and a table ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from posenc.attention.layer import SelfAttention
from posenc.core.masks import causal
from posenc.core.positions import folded
from posenc.core.shapes import Embeddings


@dataclass(frozen=True)
class FarChange:
    """Relative change of a layer's output when its text starts at position `start` instead of 0."""

    start: int
    change: float | None  # None: the encoding raised an error, with the message `why`
    why: str = ""


@torch.no_grad()
def far_changes(layer: SelfAttention, x: Embeddings, starts: Iterable[int]) -> list[FarChange]:
    """Return the change of a layer's output when its text starts at each of `starts` instead of 0.

    `x` are embeddings, (window, token, channel).
    """
    pos = folded(x.shape[-2], layer.encoding.axes)
    here = layer(x, pos, causal())
    changes = []
    for start in starts:
        try:
            there = layer(x, pos + start, causal())
        except IndexError as error:
            changes.append(FarChange(start, None, str(error)))
        else:
            changes.append(FarChange(start, ((there - here).norm() / here.norm()).item()))
    return changes
