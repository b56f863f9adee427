"""Fit a sinusoidal formula to a position table.

The fit determines the order of sine and cosine, the base, the offset and the amplitude.

    z(r, j) = cos + i·sin of pair j in row r = A exp(i (r + offset) θⱼ)        θⱼ = base^(−2j/d)

θⱼ is the step of the phase of z, the angle of Σ z(r + 1) z̄(r); ln θⱼ = −j · 2 ln(base)/d gives the
base. Exponents j/(d/2 − 1), as in tensor2tensor, fairseq and Whisper, give the same numbers with
another base. That form is chosen if its base has two digits and the base of the paper's form does
not.

Vaswani et al. 2017, arXiv:1706.03762, §3.5.
"""

from dataclasses import dataclass
from math import exp
from typing import get_args

import torch
from torch import Tensor

from posenc.core.frequencies import Layout, join, split

RESIDUAL = 0.02  # largest relative residual of a fit; rounding to bfloat16 causes 0.002
FEWEST_ROWS = 8  # rows; two or three random rows would fit some formula
FARTHEST = 4096  # largest offset in the search
PAIRS_TRIED = 1024  # pairs in the search for the offset


@dataclass(frozen=True)
class Formula:
    """A formula for the rows r of a position table: `size` times sin and cos of (r + offset) θⱼ."""

    layout: Layout  # "interleaved" alternates sine and cosine, "half" has all of one kind first
    sine_first: bool
    base: float
    closed: bool  # True for exponents j / (d/2 − 1), with 1 / base for the slowest pair
    offset: int
    size: float
    empty: list[int]  # rows of zeros, for instance of padding
    residual: float  # relative error of the formula, root mean square


@torch.no_grad()
def fit_formula(table: Tensor) -> Formula | None:
    """Fit a sinusoidal formula to a table (position, channel); return None if the fit is bad."""
    filled = table.any(-1)
    if filled.sum() < FEWEST_ROWS or table.shape[-1] < 4 or table.shape[-1] % 2:
        return None
    best = min(
        (_fit_layout(table.double(), filled, to) for to in get_args(Layout)),
        key=lambda formula: formula.residual,
    )
    return best if best.residual <= RESIDUAL else None


def _fit_layout(table: Tensor, filled: Tensor, layout: Layout) -> Formula:
    """Fit sines and cosines in the given layout to a table, and return the best formula."""
    row = filled.nonzero().flatten()
    first, second = split(table[row], layout)
    z = torch.complex(second, first)
    sine_first = bool(_phase(z, row)[0][0] > 0)
    if not sine_first:
        z = torch.complex(first, second)
    theta, phase = _phase(z, row)
    base, closed = _base(_slope(theta), len(theta))
    theta = base ** (-torch.arange(len(theta)).double() / (len(theta) - closed))
    offset, size = _offset(phase, theta), float(z.abs().mean())
    angle = (row + offset).unsqueeze(-1) * theta
    waves = (angle.sin(), angle.cos()) if sine_first else (angle.cos(), angle.sin())
    left = table[row] - size * join(*waves, layout)
    empty = (~filled).nonzero().flatten().tolist()
    residual = float(left.norm() / table.norm())
    return Formula(layout, sine_first, base, closed, offset, size, empty, residual)


def _phase(z: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for each channel pair, the phase step from row to row, and the phase of row 0."""
    theta = (z[1:] * z[:-1].conj())[row.diff() == 1].sum(0).angle()
    stopped = z * torch.polar(torch.ones(()).double(), -row.unsqueeze(-1) * theta)
    return theta, stopped.sum(0).angle()


def _slope(theta: Tensor) -> float:
    """Fit −ln θⱼ = slope · j by least squares over channel pairs j, and return the slope.

    Pairs are weighted by θⱼ², so that errors of θⱼ count equally.
    """
    pairs, weight = torch.arange(len(theta)), theta.clamp_min(0).square()
    logs = theta.clamp_min(1e-30).log()
    return float(-(weight * pairs * logs).sum() / (weight * pairs**2).sum().clamp_min(1e-30))


def _offset(phase: Tensor, theta: Tensor) -> int:
    """Return the integer n for which the phases of row 0 are closest to n · θⱼ, modulo 2π.

    A sample of the pairs, from the fastest to the slowest, is enough.
    """
    tried = slice(None, None, -(-len(theta) // PAIRS_TRIED))
    offsets = torch.arange(-FARTHEST, FARTHEST + 1)
    fit = (phase[tried] - offsets.unsqueeze(-1) * theta[tried]).cos().sum(-1)
    return int(offsets[fit.argmax()])


def _base(slope: float, pairs: int) -> tuple[float, bool]:
    """Return the base of the frequencies, and True if the exponents are −j/(d/2 − 1).

    False means the exponents −j/(d/2).
    """
    for last, closed in ((pairs, False), (pairs - 1, True)):
        base = exp(min(slope * last, 700))
        if abs(base / float(f"{base:.1e}") - 1) < 1e-3:
            return float(f"{base:.1e}"), closed
    return exp(min(slope * pairs, 700)), False
