"""Ask whether the measured properties of encodings tell beforehand how their models generalise.

    yₑ    the rank of encoding e by the metric of the study, of its mean over seeds; 1 is the worst
    xₑₚ   1 where property p holds, 0 where it does not; the mean where it has no meaning
    ŷₑ    a ridge regression of y on standardised x, fitted without the whole family of e

Encodings that come out alike count once: those whose outcomes differ, with each seed, by less than
a hundredth of what the best and the worst differ by; where they disagree on a property, it has no
meaning.
ρ is Spearman's correlation of ŷ with the outcome. Nothing is chosen by looking at it: the ridge
weighs as much as the outcomes do, and all properties take part. The interval draws seeds anew, then
encodings; p is the share of 2,000 shufflings of outcomes among encodings whose ρ is as high. A mean
fitted without a family is low where that family is high, so that ρ of nothing is below 0: p counts
that in, and the bare ρ does not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posenc.catalog import find
from posenc.lab.study import own_code, statistics
from posenc.lab.study.analysis import Analysis, Row, cells_of
from posenc.lab.study.build import encoding_of
from posenc.lab.study.cell import Cell
from posenc.lab.study.statistics import Interval
from posenc.lab.study.store import Contents
from posenc.properties import Finding, check

ALIKE = 0.01  # share of the spread of all outcomes, within which encodings are near-doubles
FEWEST = 6  # encodings, and of three families: else there is nothing to leave out
RESAMPLES = 2_000


@dataclass(frozen=True)
class PropertyEffect:
    """One property: the encodings that have it, and how it goes with the outcome."""

    property: str
    having: Sequence[str]
    lacking: Sequence[str]
    correlation: float  # Spearman's, of ticks with outcomes; above 0: who has it does better
    adjusted: float  # two-sided p, by Holm over the properties


@dataclass(frozen=True)
class Prediction:
    """The prediction of one task by properties, every encoding predicted without its family."""

    task: str
    metric: str
    encodings: Sequence[str]
    families: Sequence[str]
    outcome: Sequence[float]  # the metric's mean over seeds
    predicted: Sequence[float]  # ranks of those that were fitted; the higher, the better
    correlation: Interval
    p: float  # one-sided
    effects: Sequence[PropertyEffect]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def predict(
    contents: Contents, analysis: Analysis, seed: int = 0, allow_code: own_code.Allowed = ()
) -> list[Prediction]:
    """Predict each task of a store that has at least six encodings of three families.

    Encodings of one's own are measured if `allow_code` names them. Raises CodeRefused where it does
    not, and ValueError, in one sentence, where no task has as many.
    """
    cells = {cell.name: cell for cell in cells_of(contents)}
    encodings = {cell.encoding for cell in cells.values()}
    own_code.check(encodings, allow_code, contents.path, contents.sources)
    kept: dict[str, list[Row]] = {}
    for row in analysis.rows:
        if row.by_seed and not row.undertrained:
            kept.setdefault(row.task, []).append(row)
    families = {name: _of(cell, _family) for name, cell in cells.items()}
    enough = {
        task: rows
        for task, rows in kept.items()
        if len(rows) >= FEWEST and len({families[row.encoding] for row in rows}) >= 3
    }
    if not enough:
        most = max((len(rows) for rows in kept.values()), default=0)
        raise ValueError(
            f"To predict by properties takes {FEWEST} trained encodings of three families on one"
            f" task; this study has {most}: add `encodings` to its plan."
        )
    names = {row.encoding for rows in enough.values() for row in rows}
    findings = {name: _of(cells[name], _properties) for name in names}
    return [
        _predict(rows, [families[row.encoding] for row in rows], findings, analysis.metric, seed)
        for rows in enough.values()
    ]


def _of(cell: Cell, function: Callable[[Cell], Any]) -> Any:
    """Call a function of a cell; of one whose encoding cannot be made, say so in a sentence."""
    try:
        return function(cell)
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        why = " ".join(str(error.args[0] if error.args else error).split())
        raise ValueError(f"encoding {cell.name!r} cannot be measured: {why}") from error


def _family(cell: Cell) -> str:
    return find(cell.encoding).family


def _properties(cell: Cell) -> Mapping[str, Finding]:
    """The properties of a cell's encoding before training, under the mask of its decoder."""
    profile = cell.profile
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cell.seed)
        encoding = encoding_of(cell)
    dim = profile.width // profile.heads
    return check(encoding, dim, profile.heads, profile.width, causal=True)


def _predict(
    rows: Sequence[Row],
    families: Sequence[str],
    findings: Mapping[str, Mapping[str, Finding]],
    metric: str,
    seed: int,
) -> Prediction:
    random = torch.Generator().manual_seed(seed)
    names = [*findings[rows[0].encoding]]
    single = [[_number(findings[row.encoding][name].holds) for name in names] for row in rows]
    groups = doubles([row.by_seed for row in rows])
    labels = [" = ".join(rows[n].encoding for n in group) for group in groups]
    families = [families[group[0]] for group in groups]
    ticks = torch.stack([_common(torch.tensor(single, dtype=torch.float64)[g]) for g in groups])
    # Fewer bits are better, so the sign makes more better in both
    sign = -1.0 if rows[0].bits else 1.0
    by_seed = [[*map(fmean, zip(*(rows[n].by_seed for n in g), strict=True))] for g in groups]
    seen = torch.tensor([[sign * fmean(one)] for one in by_seed], dtype=torch.float64)
    fitted = without_family(ticks, seen, families)
    rho = spearman(fitted, seen).item()

    shuffled = torch.stack(
        [torch.randperm(len(groups), generator=random) for _ in range(RESAMPLES)]
    )
    by_chance = seen[:, 0][shuffled].mT
    chance = spearman(without_family(ticks, by_chance, families), by_chance)
    p = (1 + (chance >= rho - 1e-9).sum().item()) / (1 + RESAMPLES)

    drawn = sign * torch.stack([_redrawn(one, random) for one in by_seed])
    again = torch.randint(len(groups), (len(groups), RESAMPLES), generator=random)
    spread = spearman(
        without_family(ticks, drawn, families).gather(0, again), drawn.gather(0, again)
    )
    low, high = spread.quantile(spread.new_tensor([0.025, 0.975])).tolist()
    return Prediction(
        rows[0].task,
        metric,
        labels,
        families,
        (sign * seen[:, 0]).tolist(),
        fitted[:, 0].tolist(),
        Interval(rho, low, high),
        p,
        _effects(names, ticks, seen, by_chance, labels),
    )


def doubles(by_seed: Sequence[Sequence[float]]) -> list[list[int]]:
    """Group encodings that come out alike with each seed; one joins a group if all are alike to it.

    Encodings that lack seeds are alike to none, and at the floor, or the ceiling, nothing is told.
    """
    means = [*map(fmean, by_seed)]
    near = ALIKE * (max(means) - min(means))

    def alike(one: Sequence[float], other: Sequence[float]) -> bool:
        pairs = zip(one, other, strict=False)
        told = len(one) == len(other) and not {*one, *other} <= {0.0, 1.0}
        return told and all(abs(x - y) < near for x, y in pairs)

    groups: list[list[int]] = []
    for n, values in enumerate(by_seed):
        for group in groups:
            if all(alike(by_seed[member], values) for member in group):
                group.append(n)
                break
        else:
            groups.append([n])
    return groups


def _common(ticks: Float[Tensor, "encoding property"]) -> Float[Tensor, "property"]:
    """The ticks that all have, or all lack; NaN where they differ."""
    return torch.where((ticks == ticks[0]).all(0), ticks[0], torch.nan)


def _effects(
    names: Sequence[str], ticks: Tensor, seen: Tensor, by_chance: Tensor, encodings: Sequence[str]
) -> list[PropertyEffect]:
    """Measure the properties that some encodings have and others lack, the strongest first."""
    by_property: dict[str, tuple[list[str], list[str], float]] = {}
    p: dict[str, float] = {}
    for name, column in zip(names, ticks.T, strict=True):
        known = ~column.isnan()
        if not 0 < column[known].sum() < known.sum():
            continue
        has = column[known].unsqueeze(1)
        rho = spearman(has, seen[known]).item()
        chance = spearman(has.expand(-1, RESAMPLES), by_chance[known])
        p[name] = (1 + (chance.abs() >= abs(rho) - 1e-9).sum().item()) / (1 + RESAMPLES)
        having, lacking = (
            [encoding for encoding, tick in zip(encodings, column, strict=True) if tick == value]
            for value in (1, 0)
        )
        by_property[name] = having, lacking, rho
    adjusted = statistics.holm(p)
    ordered = sorted(by_property, key=lambda name: -abs(by_property[name][2]))
    return [PropertyEffect(name, *by_property[name], adjusted[name]) for name in ordered]


def without_family(
    ticks: Float[Tensor, "encoding property"],
    outcomes: Float[Tensor, "encoding study"],
    families: Sequence[str],
) -> Float[Tensor, "encoding study"]:
    """Predict the rank of each encoding from a fit on those of the other families."""
    fitted = torch.empty_like(outcomes, dtype=torch.float64)
    for family in dict.fromkeys(families):
        out = torch.tensor([other_family == family for other_family in families])
        x, y = ticks[~out], ranks(outcomes[~out])
        mean = x.nanmean(0)
        apart = x - mean
        spread = apart.square().nanmean(0).sqrt()
        # a property that all others share, or none of them has, says nothing
        scale = torch.where(spread > 0, 1 / spread, 0.0)
        z = (apart * scale).nan_to_num(0.0)
        held = ((ticks[out] - mean) * scale).nan_to_num(0.0)
        square = z.mT @ z / len(z) + torch.eye(z.shape[1], dtype=z.dtype)
        weights = torch.linalg.solve(square, z.mT @ (y - y.mean(0)) / len(z))
        fitted[out] = y.mean(0) + held @ weights
    return fitted


def ranks(x: Float[Tensor, "encoding study"]) -> Float[Tensor, "encoding study"]:
    """The places of each column's numbers from 1 on; equal ones share the mean of theirs."""
    below = (x.unsqueeze(0) < x.unsqueeze(1)).sum(1)
    same = (x.unsqueeze(0) == x.unsqueeze(1)).sum(1)
    return below.double() + (same.double() + 1) / 2


def spearman(
    x: Float[Tensor, "encoding study"], y: Float[Tensor, "encoding study"]
) -> Float[Tensor, "study"]:
    """Compute the rank correlation of each column; 0 where all of one side are equal."""
    x_ranks, y_ranks = (ranks(side) - (len(side) + 1) / 2 for side in (x, y))
    both = x_ranks.square().sum(0) * y_ranks.square().sum(0)
    return torch.where(both > 0, (x_ranks * y_ranks).sum(0) / both.sqrt(), 0.0)


def _redrawn(by_seed: Sequence[float], random: torch.Generator) -> Float[Tensor, "study"]:
    """Means of seeds that are drawn anew."""
    drawn = torch.randint(len(by_seed), (RESAMPLES, len(by_seed)), generator=random)
    return torch.tensor(by_seed, dtype=torch.float64)[drawn].mean(1)


def _number(holds: bool | None) -> float:
    return float("nan") if holds is None else float(holds)
