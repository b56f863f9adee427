"""Student's t, with any number of degrees of freedom, by a table of its distribution."""

from math import atan, pi, tan

import torch
from torch import Tensor


def _t(degrees: float) -> tuple[Tensor, Tensor]:
    """The angles atan(t/√ν) of Student's t, whose density is cos^(ν−1), and the shares below."""
    angle = torch.linspace(-pi / 2, pi / 2, 20_001, dtype=torch.float64)
    below = torch.cumulative_trapezoid(angle.cos().clamp_min(0) ** (degrees - 1), angle)
    return angle, torch.cat((below.new_zeros(1), below / below[-1]))


def t_below(value: float, degrees: float) -> float:
    """Compute the probability that Student's t is below a value.

    >>> round(t_below(2.571, 5), 4)
    0.975
    """
    angles, below = _t(degrees)
    return between(
        angles, below, torch.tensor(atan(value / degrees**0.5), dtype=torch.float64)
    ).item()


def t_quantile(share: float, degrees: float) -> float:
    """Compute the value below which Student's t is with a probability.

    >>> round(t_quantile(0.975, 5), 3)
    2.571
    """
    angles, below = _t(degrees)
    return (
        tan(between(below, angles, torch.tensor(share, dtype=torch.float64)).item()) * degrees**0.5
    )


def between(x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """Read a table of rising x at places between two of them."""
    right = torch.searchsorted(x, at.to(x.dtype)).clamp(1, len(x) - 1)
    part = (at - x[right - 1]) / (x[right] - x[right - 1])
    return y[right - 1] + part * (y[right] - y[right - 1])
