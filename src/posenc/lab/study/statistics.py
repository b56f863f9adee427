"""Statistics of a few runs: intervals over seeds and prompts, exact tests, and no more than that.

    interquartile mean        of the middle half, the cells at its edges counted by their share
    area                      mean share of right answers over the lengths L < n ≤ 2L
    sign-flip test            p = share of all 2ⁿ ways to flip the signs of n paired differences
                              whose |sum| is at least the one seen
    probability of improvement  P(X > Y) + P(X = Y) / 2, over all pairs of runs
    performance profile       share of runs of all tasks whose score is above each level

Runs are paired by seed: the same data and the same shared weights. Three of them cannot rank
anything, for their least p is 0.25; six can (0.031). Agarwal et al. 2021, "Deep Reinforcement
Learning at the Edge of the Statistical Precipice", arXiv:2108.13264, for all but area and test;
Fisher 1935, "The Design of Experiments", §21, for the test; Holm 1979 for several of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import isfinite

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from posenc.core.arguments import count

RANKING = 6  # paired seeds from which on a difference can be significant at 5 %
EXACT = 20  # seeds up to which all 2ⁿ flips are tried
RESAMPLES = 10_000
AT_ONCE = 2**15  # prompts that are drawn in one call


@dataclass(frozen=True)
class Interval:
    """An estimate and where it lies with `level` confidence."""

    value: float
    low: float
    high: float
    level: float = 0.95

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def interquartile_mean(values: Sequence[float] | Tensor) -> float:
    """The mean of the middle half; a value at an edge counts by the share of it that is inside.

    >>> interquartile_mean([0.0, 1.0, 2.0, 100.0])
    1.5
    """
    return _middle(_vector(values)).item()


def _middle(x: Float[Tensor, "*rows run"]) -> Float[Tensor, "*rows"]:
    edges = torch.linspace(0, 1, x.shape[-1] + 1, dtype=torch.float64)
    inside = edges[1:].clamp(max=0.75) - edges[:-1].clamp(min=0.25)
    weight = inside.clamp_min(0)
    return (x.sort().values * weight).sum(-1) / weight.sum()


def area(lengths: Sequence[int], right: Sequence[float], trained: int) -> float:
    """The mean of `right` over the lengths beyond `trained`, up to twice as long.

    >>> area([10, 20, 30, 40], [1.0, 1.0, 0.5, 0.0], trained=20)
    0.25
    """
    beyond = [x for n, x in zip(lengths, right, strict=True) if trained < n <= 2 * trained]
    if not beyond:
        raise ValueError(
            f"no length lies beyond `trained`={trained} and within twice of it, got"
            f" {list(lengths)}: test some."
        )
    return sum(beyond) / len(beyond)


def first_below(lengths: Sequence[int], right: Sequence[float], half: float = 0.5) -> int | None:
    """The first length with fewer than `half` of the answers right; None where there is none.

    >>> first_below([10, 20, 30], [1.0, 0.6, 0.4])
    30
    """
    pairs = sorted(zip(lengths, right, strict=True))
    return next((n for n, x in pairs if x < half), None)


def bootstrap(
    outcomes: Sequence[Bool[Tensor, "prompt"] | Float[Tensor, "prompt"]],
    statistic: Callable[[Tensor], Tensor] | None = None,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Estimate the mean over runs and its interval: draw seeds anew, then the prompts of each.

    `outcomes` is a vector for each seed: of every prompt, whether it came out right, or a paired
    difference. `statistic` maps means (resample, seed) to numbers (resample,); None: their mean.
    """
    table, random = _table(outcomes), torch.Generator().manual_seed(seed)
    combine = statistic or (lambda means: means.mean(-1))
    means = _redrawn(table, count(resamples, "resamples"), random)
    return _interval(combine(table.mean(1).unsqueeze(0)), combine(means), level)


def interquartile(
    outcomes: Sequence[Sequence[Tensor]],
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Estimate the interquartile mean over all runs of several tasks, and its interval.

    `outcomes` has for each task what `bootstrap` takes; seeds are drawn anew within each task, so
    that none is drawn more often than another (Agarwal et al. 2021, §4.1), then prompts.
    """
    if not outcomes:
        raise ValueError("`outcomes` must hold the runs of each task, got none.")
    tables, random = [*map(_table, outcomes)], torch.Generator().manual_seed(seed)
    drawn = [_redrawn(table, count(resamples, "resamples"), random) for table in tables]
    seen = torch.cat([table.mean(1) for table in tables]).unsqueeze(0)
    return _interval(_middle(seen), _middle(torch.cat(drawn, 1)), level)


def _table(outcomes: Sequence[Tensor]) -> Float[Tensor, "seed prompt"]:
    if not outcomes:
        raise ValueError("`outcomes` must hold a vector of each seed, got none.")
    rows = [_vector(vector) for vector in outcomes]
    counts = {len(row) for row in rows}
    if len(counts) > 1:
        raise ValueError(
            f"`outcomes` must be of the same prompts for each seed, got {sorted(counts)} of them."
        )
    return torch.stack(rows)


def _redrawn(table: Tensor, resamples: int, random: torch.Generator) -> Tensor:
    """Draw seeds anew, and the prompts of each; return the means (resample, seed)."""
    seeds, prompts = table.shape
    means, left = [], resamples
    while left:  # so many at once that they stay in the processor's cache
        some = min(left, max(1, AT_ONCE // table.numel()))
        drawn = torch.randint(seeds, (some, seeds), generator=random)
        asked = torch.randint(prompts, (some, seeds, prompts), generator=random)
        means.append(table[drawn].gather(2, asked).mean(2))
        left -= some
    return torch.cat(means)


def _interval(seen: Tensor, spread: Tensor, level: float) -> Interval:
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=spread.dtype)
    low, high = spread.quantile(tails).tolist()
    return Interval(seen.item(), low, high, level)


def performance_profile(scores: Sequence[float], levels: Sequence[float]) -> dict[float, float]:
    """The share of runs whose score is above each level.

    >>> performance_profile([0.0, 0.4, 1.0, 1.0], [0.0, 0.5])
    {0.0: 0.75, 0.5: 0.5}
    """
    x = _vector(scores)
    return {level: (x > level).double().mean().item() for level in levels}


def sign_flip(differences: Sequence[float] | Tensor, seed: int = 0) -> float:
    """Compute the two-sided p of paired differences whose signs may as well be others.

    Exact up to 20 pairs; of more, 100,000 flips are drawn.

    >>> sign_flip([1.0, 2.0, 3.0])
    0.25
    """
    x = _vector(differences)
    if len(x) <= EXACT:
        flips = torch.tensor([*product((1.0, -1.0), repeat=len(x))], dtype=torch.float64)
    else:
        random = torch.Generator().manual_seed(seed)
        drawn = torch.randint(2, (100_000, len(x)), generator=random).double() * 2 - 1
        flips = torch.cat([torch.ones(1, len(x), dtype=torch.float64), drawn])
    seen = x.sum().abs()
    # sums that are equal but for rounding count as equal
    return ((flips @ x).abs() >= seen - 1e-12 * x.abs().sum()).double().mean().item()


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Adjust the p-values of several comparisons so that all hold together.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    adjusted, least = {}, 0.0
    for place, (name, value) in enumerate(sorted(p.items(), key=lambda item: item[1])):
        least = max(least, min(1.0, value * (len(p) - place)))
        adjusted[name] = least
    return adjusted


def probability_of_improvement(
    one: Sequence[float] | Tensor, other: Sequence[float] | Tensor
) -> float:
    """The share of pairs in which a run of `one` beats a run of `other`; ties count half.

    >>> probability_of_improvement([1.0, 2.0], [0.0, 1.0])
    0.875
    """
    apart = _vector(one).unsqueeze(1) - _vector(other)
    return ((apart > 0).double() + (apart == 0).double() / 2).mean().item()


def enough(interval: Interval, seeds: int, half_width: float = 0.05, most: int = 32) -> bool:
    """Test whether a plan that stops at an interval of that half-width is to stop now."""
    return seeds >= most or (seeds >= RANKING and interval.half_width <= half_width)


def seeds_for(comparisons: int, level: float = 0.05) -> int:
    """The fewest paired seeds with which one of several comparisons can be significant at all.

    The least p of n seeds is 2 / 2ⁿ, and Holm multiplies it by the number of comparisons.

    >>> seeds_for(1), seeds_for(2), seeds_for(6)
    (6, 7, 8)
    """
    return next(n for n in range(1, 1024) if comparisons * 2 / 2**n < level)


def may_rank(seeds: int) -> bool:
    """Test whether so many paired seeds can show a difference at all; else: no ranking claims."""
    return seeds >= RANKING


def _vector(values: Sequence[float] | Tensor) -> Tensor:
    x = torch.as_tensor(values, dtype=torch.float64)
    if x.ndim != 1 or not len(x) or not all(map(isfinite, x.tolist())):
        raise ValueError(
            f"statistics are made of a list of finite numbers, at least one, got {values!r:.60}."
        )
    return x
