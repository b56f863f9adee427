"""Fit the matrix that maps PE(p) to PE(p + k) for every position p, if an encoding has one.

    PE(p + k) = M_k PE(p) for all p,    M_a M_b = M_(a+b),    M_k M_kᵀ = 1

For sinusoids M_k is a rotation in each pair of channels: for (sin, cos) it is [[c, s], [−s, c]],
c = cos kθ, s = sin kθ, and its transpose for (cos, sin). Here M_k is fitted to rows by least
squares, so that `missed` is large if no matrix exists. The rows are at random positions up to four
million, or fewer if the encoding accepts fewer, because neighbouring rows hardly differ in their
slow pairs and would leave M undetermined. In directions without rows, M is 1.

Vaswani et al. 2017, arXiv:1706.03762, §3.5.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.core.encoding import Encoding
from posenc.properties.probe import Probe

EXTRA_ROWS = 64  # rows in addition to two per channel
RANK = 1e-5  # relative size of a singular value above the rounding of rows to float32


@dataclass(frozen=True)
class Shift:
    """The fitted matrix M_k, (channel, channel), which maps the column PE(p) to PE(p + k)."""

    by: int  # k, in tokens
    matrix: list[list[float]]
    missed: float  # the largest |PE(p + k) − M_k PE(p)| of near rows, divided by mean |PE(p)|


@dataclass(frozen=True)
class Group:
    """The fitted shift matrices M_a, M_b and M_(a+b), and the product M_a M_b."""

    a: Shift
    b: Shift
    both: Shift  # the shift by a + b
    product: list[list[float]]  # M_a M_b
    apart: float  # the largest entry of M_a M_b − M_(a+b)


@torch.no_grad()
def group(encoding: Encoding, a: int, b: int, tokens: int = 256) -> Group | None:
    """Fit the shift matrices M_a, M_b and M_(a+b) of an encoding to random positions.

    Returns None if the encoding has no vector per position. The fit is tested on the first `tokens`
    positions.
    """
    probe = Probe(encoding, heads=None if encoding.heads else 1)
    row = probe.rows(probe.line(1))
    if row is None:
        return None
    room, count = max(1, probe.limit - a - b), 2 * row.shape[-1] + EXTRA_ROWS
    # A table is fitted to half of its rows and tested on the others
    if room < 2 * count:
        far = torch.randperm(room, generator=probe.random)[: max(1, room // 2)]
    else:
        far = torch.randint(0, room, (count,), generator=probe.random)
    pos = torch.cat((probe.line(min(tokens, room)), far))
    # All rows are computed in one text, because they may depend on its length
    rows = probe.rows(torch.cat([pos + k for k in (0, a, b, a + b)]))
    assert rows is not None
    here, *there = rows.chunk(4)
    near = len(pos) - len(far)
    first, second, both = (
        _fitted(k, here, moved, near) for k, moved in zip((a, b, a + b), there, strict=True)
    )
    product = _matrix(first) @ _matrix(second)
    apart = (product - _matrix(both)).abs().max().item()
    return Group(first, second, both, product.tolist(), apart)


def _fitted(by: int, here: Tensor, there: Tensor, near: int) -> Shift:
    """Fit a linear map from the vectors `here` to the vectors `there`.

    The first `near` vectors are left out of the fit, and are used to test the map.
    """
    _, size, basis = torch.linalg.svd(here[near:], full_matrices=False)
    basis = basis[size > RANK * size[0]].mT  # (channel, rank): the directions that rows have
    moved = torch.linalg.lstsq(here[near:] @ basis, there[near:]).solution  # (rank, channel)
    complement = torch.eye(len(basis), dtype=basis.dtype) - basis @ basis.mT
    # For row vectors, here · (basis · moved) = there; in directions without rows the matrix is 1.
    # Column vectors need the transpose.
    move = (basis @ moved + complement).mT
    missed = (here @ move.mT - there)[:near].norm(dim=-1).max() / here[:near].norm(dim=-1).mean()
    return Shift(by, move.tolist(), missed.item())


def _matrix(shift: Shift) -> Tensor:
    return torch.tensor(shift.matrix, dtype=torch.float64)
