"""The matrix that moves every position by so many tokens, where an encoding has one.

    PE(p + k) = M_k PE(p) for all p,    M_a M_b = M_(a+b),    M_k M_kᵀ = 1

For sinusoids M_k is a rotation in each pair of channels: for (sin, cos) it is [[c, s], [−s, c]],
c = cos kθ, s = sin kθ, and its transpose for (cos, sin). Here it is not taken from the formula but
fitted to rows, by least squares, so that `missed` tells where there is no such matrix.

Vaswani et al. 2017, arXiv:1706.03762, §3.5.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.encoding import Encoding
from posenc.probe import Probe


@dataclass(frozen=True)
class Shift:
    """M_k, (channel, channel), acting on columns."""

    by: int  # k, in tokens
    matrix: list[list[float]]
    missed: float  # the largest |PE(p + k) − M_k PE(p)|, to the mean |PE(p)|


@dataclass(frozen=True)
class Group:
    """Two shifts one after the other, and both at once."""

    a: Shift
    b: Shift
    both: Shift  # by a + b
    product: list[list[float]]  # M_a M_b
    apart: float  # the largest entry of M_a M_b − M_(a+b)


@torch.no_grad()
def group(encoding: Encoding, a: int, b: int, tokens: int = 256) -> Group | None:
    """Fitted to rows 0 … tokens − 1. None: positions have no rows, as in ALiBi."""
    probe = Probe(encoding, heads=None if encoding.heads else 1)
    rows = probe.rows(probe.line(tokens + a + b))
    if rows is None:
        return None
    first, second, both = (_fitted(k, rows[:tokens], rows[k : k + tokens]) for k in (a, b, a + b))
    product = _matrix(first) @ _matrix(second)
    apart = (product - _matrix(both)).abs().max().item()
    return Group(first, second, both, product.tolist(), apart)


def _fitted(by: int, here: Tensor, there: Tensor) -> Shift:
    move = (torch.linalg.pinv(here, rtol=1e-6) @ there).mT
    missed = (here @ move.mT - there).norm(dim=-1).max() / here.norm(dim=-1).mean()
    return Shift(by, move.tolist(), missed.item())


def _matrix(shift: Shift) -> Tensor:
    return torch.tensor(shift.matrix, dtype=torch.float64)
