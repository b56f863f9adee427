"""Evaluate a one-input ReLU network as a piecewise linear function.

    Σₙ outer[h, n] · ReLU(weightₙ x + shiftₙ) = slope[h, s] · x + height[h, s]

s is the number of knots −shiftₙ / weightₙ below x. At a knot a unit is switched on, or off if its
weight is negative; slope and height are sums over the units that are on. The function is continuous
at knots, so the gradient of the network is the gradient of slope and height alone.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from posenc.compat.tracing import no_autocast


def piecewise_linear(
    weight: Tensor, shift: Tensor, outer: Tensor
) -> Callable[[Tensor, Tensor], Tensor]:
    """Convert a one-input ReLU network to a function of (head, x) that is faster for many x.

    The last axis of the heads must have the size 1.

    >>> relu = piecewise_linear(torch.tensor([1.0]), torch.tensor([-2.0]), torch.tensor([[3.0]]))
    >>> relu(torch.tensor([[0]]), torch.tensor([1.0, 2.0, 4.0]))
    tensor([[0., 0., 6.]])
    """
    # A unit with weight 0 is always on or off; 0 / 0 would be NaN, which cannot be sorted
    knots, order = torch.where(weight == 0, float("inf"), -shift / weight).detach().sort()
    place, below = order.argsort(), torch.arange(len(weight) + 1, device=weight.device)
    past = below.unsqueeze(-1) > place  # (piece, unit)
    on = torch.where(weight == 0, shift > 0, past == (weight > 0))
    with no_autocast(outer):
        tables = outer @ (on * weight).mT, outer @ (on * shift).mT  # (head, piece)

    def f(h: Tensor, x: Tensor) -> Tensor:
        piece = torch.bucketize(x.detach(), knots)
        if h.ndim == 4 == x.ndim and x.shape[1] == 1 and not tables[0].requires_grad:
            # All heads index the same pieces, (batch, 1, query, key); gradients would be slower
            every, shape = piece.flatten(), piece[:, 0].shape
            rows = (table[h.flatten()].index_select(1, every) for table in tables)
            slope, height = (row.unflatten(1, shape).transpose(0, 1) for row in rows)
        else:
            shape = torch.broadcast_shapes(h.shape, x.shape)
            rows = (table[h.squeeze(-1)].expand(*shape[:-1], -1) for table in tables)
            slope, height = (row.gather(-1, piece.expand(shape)) for row in rows)
        return height.addcmul_(slope, x)

    return f
