"""Measure a learned table: how smooth its rows are, and which of them training never met.

    likeness(p) = cos(row p − 1, row p)          of neighbours: near 1 where the table is smooth
    directions = (Σ λ)² / Σ λ²                   λ: variances of the rows along their principal axes

Rows that training has not met are as they were initialised: independent, so in d channels their
likeness is N(0, 1/d), and of one size, ln |row| = N(·, 1/2d). Of the rows before, both may have any
mean, and a spread no smaller. The table ends in such rows from where this makes it most likely, if
that is e²⁰ times as likely as with none; chance gave up to e¹¹ in 300 random tables. A decline by
degrees has no such place: `falls` says from where likeness stays below what is usual in the table.

A later training on shorter texts leaves a seam: rows that it moved, and rows behind them as they
were, smooth on both sides. There likeness drops, far below what is usual nearby, and the size of
rows is another before and after.
"""

from dataclasses import dataclass
from math import log
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

LEAST_GAIN = 20.0  # nats by which a table with untrained rows must be likelier than one without
WINDOW = 16  # rows over which likeness is averaged, to see where it falls
LEAST_FALL = 0.1  # fall of likeness, up to the end of the table or at a seam
SEAM_NOISES = 10.0  # times the noise nearby, by which likeness drops at a seam
SEAM_ERRORS = 5.0  # standard errors by which the mean size of rows differs beside a seam

Untrained = Literal["random", "alike", "zero", ""]


@dataclass(frozen=True)
class Rows:
    """A learned table, measured. Quarters are means over a fourth of it each."""

    norms: list[float]
    likeness: list[float]  # likeness of rows 1, 2, … to the row before
    norm_quarters: list[float]
    likeness_quarters: list[float]
    directions: float  # how many there are in which rows differ, as if in each equally
    trained: int  # rows before the untrained ones: all, if there are none of these
    untrained: Untrained  # the kind of the rows from there on
    falls: int | None  # the row from which likeness declines, among the trained ones
    seam: int | None = None  # the first row that a later training on shorter texts left as it was


@torch.no_grad()
def rows(table: Tensor) -> Rows:
    """Measure a table (row, channel)."""
    table = table.double()
    norms, likeness = table.norm(dim=-1), cosine_similarity(table[1:], table[:-1], dim=-1)
    trained, untrained = boundary(table)
    return Rows(
        norms.tolist(),
        likeness.tolist(),
        [float(part.mean()) for part in norms.tensor_split(4) if len(part)],
        [float(part.mean()) for part in likeness.tensor_split(4) if len(part)],
        directions(table - table.mean(0)),
        trained,
        untrained,
        falls(likeness[: max(trained - 1, 0)]),
        seam(norms[:trained], likeness[: max(trained - 1, 0)]),
    )


def directions(centred: Tensor) -> float:
    """Participation ratio of centred rows, (Σ λ)² / Σ λ²: both sums come from products of rows."""
    products = centred.mT @ centred if len(centred) > centred.shape[-1] else centred @ centred.mT
    squares = products.square().sum()
    return float(products.trace().square() / squares) if squares > 0 else 0.0


def boundary(table: Tensor) -> tuple[int, Untrained]:
    """Count the rows that training has met; and a word for those after them."""
    rows = len(table)
    same = int((table == table[-1]).all(-1).flip(0).long().cumprod(0).sum())
    if same > 1:
        return rows - same, "alike" if table[-1].any() else "zero"
    # The row of a padding token is zero, and is no sign of missing training
    there = table.any(-1).nonzero().flatten()
    table, drawn = table[there], 1 / table.shape[-1]
    if len(table) < 4:
        return rows, ""
    size = table.norm(dim=-1).log()
    likeness = cosine_similarity(table[1:], table[:-1], dim=-1)
    if likeness.square().mean() < 1.3 * drawn and size.var() < 1.5 * drawn / 2:
        return 0, "random"
    # Of the rows that end before row 2, 3, …, and of those from row 1, … on
    before = _likelihood_up_to(size, drawn / 2)[1:] + _likelihood_up_to(likeness, drawn)
    after = _likelihood_from(size, drawn / 2, centred=True)[1:]
    after = after + _likelihood_from(likeness, drawn)
    gain = before[:-2] + after[1:-1] - before[-1]
    best = int(gain.argmax())
    return (int(there[best + 2]), "random") if gain[best] > LEAST_GAIN else (rows, "")


def falls(likeness: Tensor) -> int | None:
    """The row from which neighbours are ever less alike; None: they are not."""
    if len(likeness) < 4 * WINDOW:
        return None
    usual = likeness.median()
    noise = 1.4826 * (likeness - usual).abs().median() / WINDOW**0.5
    means = likeness.unfold(0, WINDOW, 1).mean(-1)
    if means[-1] > usual - LEAST_FALL:
        return None
    return int((means >= usual - 2 * noise).nonzero()[-1]) + WINDOW


def seam(norms: Tensor, likeness: Tensor) -> int | None:
    """The first row behind a seam, of tables (row,) and (row − 1,); None: there is none.

    The row at which texts ended may stand out by itself: of drops side by side the last counts.
    """
    seam_row = None
    size = norms.clamp_min(1e-300).log()
    for row in range(WINDOW + 1, len(norms) - WINDOW):
        # The likenesses around `row`, each of a row to the one before
        near = likeness[row - 1 - WINDOW : row - 1 + WINDOW]
        usual = near.median()
        noise = 1.4826 * (near - usual).abs().median()
        if likeness[row - 1] > usual - max(LEAST_FALL, float(SEAM_NOISES * noise)):
            continue
        before, after = size[row - 1 - WINDOW : row - 1], size[row + 1 : row + 1 + WINDOW]
        error = ((before.var() + after.var()) / WINDOW).sqrt()
        if (after.mean() - before.mean()).abs() > SEAM_ERRORS * error:
            if seam_row is not None and row > seam_row + 2:
                # Drops in several places are no seam
                return None
            seam_row = row
    return seam_row


def _likelihood_up_to(x: Tensor, least: float) -> Tensor:
    """Compute ln likelihood of x[:1], x[:2], …: normal, any mean, any variance from `least` on."""
    count = torch.arange(1, len(x) + 1)
    variance = x.square().cumsum(0) / count - (x.cumsum(0) / count).square()
    variances = variance.clamp_min(least)
    return -count / 2 * (variances.log() + variance / variances)


def _likelihood_from(x: Tensor, variance: float, centred: bool = False) -> Tensor:
    """Compute ln likelihood of x[0:], x[1:], …: normal, this variance, mean 0, or any (centred)."""
    back = x.flip(0)
    count = torch.arange(1, len(x) + 1)
    squares = back.square().cumsum(0) - (back.cumsum(0).square() / count if centred else 0)
    return (-count / 2 * log(variance) - squares / (2 * variance)).flip(0)
