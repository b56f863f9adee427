"""Rotate word vectors in a plane by their positions, as RoPE rotates one pair of channels.

    turned    R(p θ) (x, y),  R(a) = [[cos a, −sin a], [sin a, cos a]]

A rotation by θ per token keeps the angle between two words if both are shifted.

Su et al. 2021, arXiv:2104.09864, eq. 13 and figure 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan2, degrees, remainder, tau

import torch
from jaxtyping import Float
from torch import Tensor

from posenc.core.positions import sequence
from posenc.rotation.rotate import rotate
from posenc.rotation.table import turn


@dataclass(frozen=True)
class Turned:
    """Two-channel word vectors, before and after rotation in proportion to their positions."""

    words: list[str]
    position: list[int]
    theta: float  # radians per token
    before: list[list[float]]  # (word, 2)
    after: list[list[float]]

    def angle(self, first: int, second: int, after: bool = True) -> float:
        """Return the counter-clockwise angle from one word vector to another, −180° … 180°."""
        (x, y), (u, v) = ((self.after if after else self.before)[n] for n in (first, second))
        return degrees(remainder(atan2(v, u) - atan2(y, x), tau))


def turned(
    words: Sequence[str],
    x: Float[Tensor, "token 2"],
    theta: float,
) -> Turned:
    """Rotate two-channel word vectors by `theta` radians per position, at positions 0, 1, 2, …"""
    pos = sequence(len(x))
    by = turn(pos, torch.tensor([theta], dtype=torch.float64))
    after = rotate(x[None, None], by, "interleaved")[0, 0]
    return Turned(list(words), pos.tolist(), theta, x.tolist(), after.tolist())
