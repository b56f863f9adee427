"""The table of a rotation: cos and sin of the angle of each channel pair at each position.

    cos, sin of p·θ, times a gain        computed in float64, rounded once to float32

The table stores nothing else, so it can be written to, moved, sliced, copied and saved like any
tensors. Kernels that need another form compute it in each call.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.core.frequencies import angles, for_heads
from posenc.core.prepared import Prepared
from posenc.core.shapes import Frequencies, Points, Positions


class Turn(Prepared, NamedTuple("Turn", [("cos", Tensor), ("sin", Tensor)])):
    """cos and sin of the angle of each channel pair, shape (*batch, 1 or head, token, pair)."""


def turn(pos: Positions | Points, freqs: Frequencies, gain: float | Tensor = 1.0) -> Turn:
    """Return gain · cos and gain · sin of the angles p·θ, in float64, rounded once to float32.

    - `pos`: positions (token,), (batch, token) or (batch, head, token); points have a trailing axis
    - `freqs`: θ, (pair,) or (axis, pair), in radians per token. If θ is learned, compute a new
      table after each step of training
    - `gain`: factor of cos and sin, 1 by default

    Returns a `Turn` of cos and sin, (*batch, 1 or head, token, pair), for `rotate`.

    >>> from posenc import frequencies, positions
    >>> turn(positions.sequence(3), frequencies(4)).cos.shape
    torch.Size([1, 3, 2])
    """
    angle = angles(pos, freqs)
    cos, sin = torch.cos(angle), torch.sin(angle)
    if isinstance(gain, Tensor) or gain != 1:
        cos, sin = gain * cos, gain * sin
    return Turn(*[for_heads(x.float().to(pos.device)) for x in (cos, sin)])


def copied(k: Tensor, table: Tensor) -> Tensor:
    """Repeat shared keys for each query head, if the table differs between query heads.

    `table` has the shape (*batch, 1 or head, token, …).
    """
    heads, shared = table.shape[-3], k.shape[1]
    if heads == 1 or heads == shared or heads % shared:
        return k
    return k.repeat_interleave(heads // shared, 1)
