"""Student's t distribution for any number of degrees of freedom, by numerical integration."""

from math import atan, pi, tan

import torch
from torch import Tensor


def _t(degrees: float) -> tuple[Tensor, Tensor]:
    """Tabulate the cumulative distribution of Student's t over the angle atan(t/√ν).

    The density of the angle is proportional to cos^(ν−1).
    """
    angle = torch.linspace(-pi / 2, pi / 2, 20_001, dtype=torch.float64)
    below = torch.cumulative_trapezoid(angle.cos().clamp_min(0) ** (degrees - 1), angle)
    return angle, torch.cat((below.new_zeros(1), below / below[-1]))


def t_below(value: float, degrees: float) -> float:
    """Return the probability that Student's t is below a value.

    >>> round(t_below(2.571, 5), 4)
    0.975
    """
    angles, below = _t(degrees)
    return between(
        angles, below, torch.tensor(atan(value / degrees**0.5), dtype=torch.float64)
    ).item()


def t_quantile(share: float, degrees: float) -> float:
    """Return the quantile of Student's t for a probability.

    >>> round(t_quantile(0.975, 5), 3)
    2.571
    """
    angles, below = _t(degrees)
    return (
        tan(between(below, angles, torch.tensor(share, dtype=torch.float64)).item()) * degrees**0.5
    )


def between(x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """Interpolate y linearly at the values `at`; the nodes x must increase."""
    right = torch.searchsorted(x, at.to(x.dtype)).clamp(1, len(x) - 1)
    part = (at - x[right - 1]) / (x[right] - x[right - 1])
    return y[right - 1] + part * (y[right] - y[right - 1])
