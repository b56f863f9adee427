"""The same words further along: what attention makes of a window that starts at a far position.

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
class Far:
    start: int
    change: float | None  # None: refused, and `why` says so
    why: str = ""


@torch.no_grad()
def at(layer: SelfAttention, x: Embeddings, starts: Iterable[int]) -> list[Far]:
    """`x` (window, token, channel), moved to begin at each of `starts` (on every axis)."""
    pos = folded(x.shape[-2], layer.encoding.axes)
    here = layer(x, pos, causal())
    found = []
    for start in starts:
        try:
            there = layer(x, pos + start, causal())
        except IndexError as error:
            found.append(Far(start, None, str(error)))
        else:
            found.append(Far(start, ((there - here).norm() / here.norm()).item()))
    return found
