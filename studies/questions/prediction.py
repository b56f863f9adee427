"""Predict from measured properties how well an encoding generalises to longer texts.

    yₑ    the rank of encoding e by the study's metric, mean over seeds; 1 is the worst
    xₑₚ   1 if property p holds, 0 if not; the mean over encodings if it is not applicable
    ŷₑ    a ridge regression of y on standardised x, fitted without the family of e

Encodings with nearly equal outcomes count once: in each seed their outcomes differ by less than a
hundredth of the difference between the best and the worst. A property on which they disagree is not
applicable.

ρ is Spearman's correlation of ŷ with the outcome. No setting was chosen by looking at ρ: the ridge
has the same weight as the outcomes, and all properties are used. The interval is a bootstrap over
seeds and then over encodings; p is the share of 2,000 permutations of the outcomes among encodings
whose ρ is as high. A mean fitted without a family is low if that family is high, so without any
relation ρ is below 0. The p accounts for this, and the bare ρ does not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posenc.catalog import find
from posenc.lab.study import statistics, user_code_gate
from posenc.lab.study.analysis import Analysis, Row, cells_of
from posenc.lab.study.build import encoding_of
from posenc.lab.study.cell import Cell
from posenc.lab.study.statistics import Interval
from posenc.lab.study.store import Contents
from posenc.properties import Finding, check

ALIKE = 0.01  # share of the range of all outcomes, within which encodings count as near-doubles
FEWEST = 6  # least number of encodings, of three families, so that one family can be left out
RESAMPLES = 2_000


@dataclass(frozen=True)
class PropertyEffect:
    """The effect of one property: encodings that have it, and rank correlation with outcomes."""

    property: str
    having: Sequence[str]
    lacking: Sequence[str]
    correlation: float  # Spearman's; above 0: encodings with the property do better
    adjusted: float  # two-sided p, by Holm over the properties


@dataclass(frozen=True)
class Prediction:
    """A prediction of one task's outcomes from properties; other families predict each family."""

    task: str
    metric: str
    encodings: Sequence[str]
    families: Sequence[str]
    outcome: Sequence[float]  # mean of the metric over seeds
    predicted: Sequence[float]  # predicted ranks, higher is better
    correlation: Interval
    p: float  # one-sided
    effects: Sequence[PropertyEffect]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def predict(
    contents: Contents, analysis: Analysis, seed: int = 0, allow_code: user_code_gate.Allowed = ()
) -> list[Prediction]:
    """Predict the outcomes of each task with at least six encodings of three families.

    - `contents`, `analysis`: contents and analysis of the store
    - `seed`: seed of the bootstrap and the permutations
    - `allow_code`: names of code in the store that may be run, to measure encodings of the user

    Raises CodeRefused for code that is not allowed, and ValueError if no task has enough encodings.
    """
    cells = {cell.name: cell for cell in cells_of(contents)}
    encodings = {cell.encoding for cell in cells.values()}
    user_code_gate.check_allowed(encodings, allow_code, contents.path, contents.sources)
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
            f"the study must have at least {FEWEST} trained encodings of three families on one"
            f" task, got {most}. Add `encodings` to its plan."
        )
    names = {row.encoding for rows in enough.values() for row in rows}
    findings = {name: _of(cells[name], _properties) for name in names}
    return [
        _predict(rows, [families[row.encoding] for row in rows], findings, analysis.metric, seed)
        for rows in enough.values()
    ]


def _of(cell: Cell, function: Callable[[Cell], Any]) -> Any:
    """Call `function` with a training run; raise ValueError if its encoding cannot be measured."""
    try:
        return function(cell)
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        why = " ".join(str(error.args[0] if error.args else error).split())
        raise ValueError(f"encoding {cell.name!r} cannot be measured: {why}") from error


def _family(cell: Cell) -> str:
    return find(cell.encoding).family


def _properties(cell: Cell) -> Mapping[str, Finding]:
    """Measure the properties of a training run's encoding before training, with a causal mask."""
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
    """Group encodings of which any two have nearly equal outcomes in each seed.

    Encodings with different numbers of seeds are never grouped, nor those whose outcomes are all 0
    or 1, because at the floor or ceiling differences cannot show.
    """
    means = [*map(fmean, by_seed)]
    near = ALIKE * (max(means) - min(means))

    def alike(one: Sequence[float], other: Sequence[float]) -> bool:
        pairs = zip(one, other, strict=False)
        comparable = len(one) == len(other) and not {*one, *other} <= {0.0, 1.0}
        return comparable and all(abs(x - y) < near for x, y in pairs)

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
    """Return the property values on which all encodings of a group agree, and NaN for others."""
    return torch.where((ticks == ticks[0]).all(0), ticks[0], torch.nan)


def _effects(
    names: Sequence[str], ticks: Tensor, seen: Tensor, by_chance: Tensor, encodings: Sequence[str]
) -> list[PropertyEffect]:
    """Correlate outcomes with each property that only some encodings have; strongest first."""
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
        # A property that all or none of the other encodings have carries no information
        scale = torch.where(spread > 0, 1 / spread, 0.0)
        z = (apart * scale).nan_to_num(0.0)
        held = ((ticks[out] - mean) * scale).nan_to_num(0.0)
        square = z.mT @ z / len(z) + torch.eye(z.shape[1], dtype=z.dtype)
        weights = torch.linalg.solve(square, z.mT @ (y - y.mean(0)) / len(z))
        fitted[out] = y.mean(0) + held @ weights
    return fitted


def ranks(x: Float[Tensor, "encoding study"]) -> Float[Tensor, "encoding study"]:
    """Return the ranks of each column's numbers from 1 on; equal numbers share a mean rank."""
    below = (x.unsqueeze(0) < x.unsqueeze(1)).sum(1)
    same = (x.unsqueeze(0) == x.unsqueeze(1)).sum(1)
    return below.double() + (same.double() + 1) / 2


def spearman(
    x: Float[Tensor, "encoding study"], y: Float[Tensor, "encoding study"]
) -> Float[Tensor, "study"]:
    """Compute the rank correlation of each column; 0 if all numbers of one side are equal."""
    x_ranks, y_ranks = (ranks(side) - (len(side) + 1) / 2 for side in (x, y))
    both = x_ranks.square().sum(0) * y_ranks.square().sum(0)
    return torch.where(both > 0, (x_ranks * y_ranks).sum(0) / both.sqrt(), 0.0)


def _redrawn(by_seed: Sequence[float], random: torch.Generator) -> Float[Tensor, "study"]:
    """Return the mean of each bootstrap resample of the seeds."""
    drawn = torch.randint(len(by_seed), (RESAMPLES, len(by_seed)), generator=random)
    return torch.tensor(by_seed, dtype=torch.float64)[drawn].mean(1)


def _number(holds: bool | None) -> float:
    return float("nan") if holds is None else float(holds)
