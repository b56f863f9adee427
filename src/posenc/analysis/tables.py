"""Measure a learned table of positions: smoothness of its rows, and rows that were never trained.

    likeness(p) = cos(row p − 1, row p)          of neighbours, near 1 if the table is smooth
    directions = (Σ λ)² / Σ λ²                   λ: variances of the rows along their principal axes

Untrained rows keep their initial values: they are independent, so in d channels their likeness is
N(0, 1/d), and have equal norms, ln |row| = N(·, 1/2d). For trained rows both may have any mean, and
at least this variance. The boundary is the row with the largest likelihood, if the table is then
e²⁰ times as likely as without untrained rows; in 300 random tables chance gave up to e¹¹. A gradual
decline has no boundary: `falls` is the row from which likeness stays below the median of the table.

Later training on shorter texts leaves a seam between changed and unchanged rows, smooth on both
sides. At a seam, likeness drops far below its values nearby, and the norms of rows differ before
and after.
"""

from dataclasses import dataclass
from math import log
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

LEAST_GAIN = 20.0  # smallest gain in ln likelihood from untrained rows
WINDOW = 16  # rows in a moving average of likeness
LEAST_FALL = 0.1  # smallest fall of likeness, up to the end of the table or at a seam
SEAM_NOISES = 10.0  # smallest drop of likeness at a seam, in units of the noise nearby
SEAM_ERRORS = 5.0  # smallest difference of mean log norms at a seam, in standard errors

Untrained = Literal["random", "alike", "zero", ""]


@dataclass(frozen=True)
class Rows:
    """Norms of the rows of a learned position table, and similarities of adjacent rows."""

    norms: list[float]
    likeness: list[float]  # likeness of rows 1, 2, … to the row before
    likeness_quarters: list[float]
    directions: float  # participation ratio, the effective number of dimensions of the rows
    trained: int  # number of rows before the untrained ones
    untrained: Untrained  # kind of the untrained rows; "" if there are none
    falls: int | None  # the trained row from which likeness declines
    seam: int | None = None  # the first row that later training on shorter texts did not change


@torch.no_grad()
def rows(table: Tensor) -> Rows:
    """Measure a learned table of positions, (row, channel)."""
    table = table.double()
    norms, likeness = table.norm(dim=-1), cosine_similarity(table[1:], table[:-1], dim=-1)
    trained, untrained = boundary(table)
    return Rows(
        norms.tolist(),
        likeness.tolist(),
        [float(part.mean()) for part in likeness.tensor_split(4) if len(part)],
        directions(table - table.mean(0)),
        trained,
        untrained,
        falls(likeness[: max(trained - 1, 0)]),
        seam(norms[:trained], likeness[: max(trained - 1, 0)]),
    )


def directions(centred: Tensor) -> float:
    """Return the participation ratio (Σ λ)² / Σ λ² of the covariance eigenvalues λ of the rows."""
    products = centred.mT @ centred if len(centred) > centred.shape[-1] else centred @ centred.mT
    squares = products.square().sum()
    return float(products.trace().square() / squares) if squares > 0 else 0.0


def boundary(table: Tensor) -> tuple[int, Untrained]:
    """Return the number of trained rows of a position table, and how the others are filled."""
    rows = len(table)
    same = int((table == table[-1]).all(-1).flip(0).long().cumprod(0).sum())
    if same > 1:
        return rows - same, "alike" if table[-1].any() else "zero"
    # The row of a padding token is zero even in a trained table
    there = table.any(-1).nonzero().flatten()
    table, drawn = table[there], 1 / table.shape[-1]
    if len(table) < 4:
        return rows, ""
    size = table.norm(dim=-1).log()
    likeness = cosine_similarity(table[1:], table[:-1], dim=-1)
    if likeness.square().mean() < 1.3 * drawn and size.var() < 1.5 * drawn / 2:
        return 0, "random"
    # ln likelihoods of trained rows up to row 2, 3, …, and of untrained rows from row 1, … on
    before = _likelihood_up_to(size, drawn / 2)[1:] + _likelihood_up_to(likeness, drawn)
    after = _likelihood_from(size, drawn / 2, centred=True)[1:]
    after = after + _likelihood_from(likeness, drawn)
    gain = before[:-2] + after[1:-1] - before[-1]
    best = int(gain.argmax())
    return (int(there[best + 2]), "random") if gain[best] > LEAST_GAIN else (rows, "")


def falls(likeness: Tensor) -> int | None:
    """Return the row at which adjacent rows become less similar, or None if they do not."""
    if len(likeness) < 4 * WINDOW:
        return None
    usual = likeness.median()
    noise = 1.4826 * (likeness - usual).abs().median() / WINDOW**0.5
    means = likeness.unfold(0, WINDOW, 1).mean(-1)
    if means[-1] > usual - LEAST_FALL:
        return None
    return int((means >= usual - 2 * noise).nonzero()[-1]) + WINDOW


def seam(norms: Tensor, likeness: Tensor) -> int | None:
    """Return the first table row that later training on shorter texts left unchanged, or None.

    The last row of training texts may differ from its neighbours, so of adjacent drops the last one
    is used.
    """
    seam_row = None
    size = norms.clamp_min(1e-300).log()
    for row in range(WINDOW + 1, len(norms) - WINDOW):
        # Likeness of rows near `row`, each to the previous row
        near = likeness[row - 1 - WINDOW : row - 1 + WINDOW]
        usual = near.median()
        noise = 1.4826 * (near - usual).abs().median()
        if likeness[row - 1] > usual - max(LEAST_FALL, float(SEAM_NOISES * noise)):
            continue
        before, after = size[row - 1 - WINDOW : row - 1], size[row + 1 : row + 1 + WINDOW]
        error = ((before.var() + after.var()) / WINDOW).sqrt()
        if (after.mean() - before.mean()).abs() > SEAM_ERRORS * error:
            if seam_row is not None and row > seam_row + 2:
                # Drops at several rows are not a seam
                return None
            seam_row = row
    return seam_row


def _likelihood_up_to(x: Tensor, least: float) -> Tensor:
    """Return the log-likelihood of each prefix x[:n] under a normal distribution fitted to it.

    The variance is at least `least`.
    """
    count = torch.arange(1, len(x) + 1)
    variance = x.square().cumsum(0) / count - (x.cumsum(0) / count).square()
    variances = variance.clamp_min(least)
    return -count / 2 * (variances.log() + variance / variances)


def _likelihood_from(x: Tensor, variance: float, centred: bool = False) -> Tensor:
    """Return the log-likelihood of each suffix x[n:] under a normal distribution of given variance.

    The mean is 0, or that of x[n:] if `centred`.
    """
    back = x.flip(0)
    count = torch.arange(1, len(x) + 1)
    squares = back.square().cumsum(0) - (back.cumsum(0).square() / count if centred else 0)
    return (-count / 2 * log(variance) - squares / (2 * variance)).flip(0)
