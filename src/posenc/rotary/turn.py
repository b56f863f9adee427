"""How far each pair of channels turns at each position: made once a forward, for all layers.

    cos, sin of p·θ, times a gain        formed in float64, rounded once to float32

The same numbers are kept a second time in the form that the CPU multiplies by fastest, so that no
layer has to make it: cos + i sin for interleaved pairs, rows as wide as a head for halves.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from posenc.shapes import Frequencies, Points, Positions
from posenc.theta import Layout, angles

FEW = 1 << 19  # numbers of queries or keys up to which it is the number of calls that counts


class Turn(NamedTuple):
    """How each pair turns, shape (*batch, 1 or head, token, pair); 1: the same for all heads."""

    cos: Tensor
    sin: Tensor


class Ready(Turn):
    """The pair, and beside it the same numbers in the form that `ready` made of them.

    Whatever maps over the pair, to another device or dtype, gets a pair without: it is made anew.
    """

    forms: tuple[Tensor, ...] = ()
    meant: tuple[str, torch.Size] | None = None  # for all heads and texts: layout; tokens, channels


def turn(
    pos: Positions | Points,
    freqs: Frequencies,
    gain: float | Tensor = 1.0,
    layout: Layout | None = None,
) -> Turn:
    """gain · cos and gain · sin of p·θ; with a `layout` they are made `ready` for it."""
    angle = angles(pos, freqs)
    cos, sin = ((gain * f(angle)).float().to(pos.device) for f in (torch.cos, torch.sin))
    by = Turn(cos.unsqueeze(-3), sin.unsqueeze(-3))
    return by if layout is None else ready(by, layout)


def ready(by: Turn, layout: Layout) -> Turn:
    """With what eager code on the CPU wants to multiply by; anything else wants cos and sin."""
    cos = by.cos
    learned = cos.requires_grad and torch.is_grad_enabled()
    traced = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    if traced or learned or not cos.is_cpu:
        return by
    made = Ready(*by)
    if layout == "interleaved":
        made.forms = (torch.complex(*by),)
    elif 16 * cos.numel() <= FEW:  # with eight heads; beyond, rows this wide serve nobody
        made.forms = doubled(by)
    *heads, tokens, pairs = cos.shape
    made.meant = (layout, torch.Size((tokens, 2 * pairs))) if heads == [1] else None
    return made


def doubled(by: Turn) -> tuple[Tensor, Tensor]:
    """(cos, cos) and (−sin, sin): for x = (a, b), x · the first + (b, a) · the second is turned."""
    return torch.cat((by.cos, by.cos), -1), torch.cat((-by.sin, by.sin), -1)
