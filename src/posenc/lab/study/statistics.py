"""Statistics of a few runs: intervals over seeds and prompts, and exact tests.

    interval                  mean ± t · s over seeds and prompts, which are the same for all seeds
    equivalence               two one-sided t tests for a difference smaller than a margin
    sign-flip test            p = share of all 2ⁿ ways to flip the signs of n paired differences
                              whose |sum| is at least the observed one

Runs are paired by seed: they have the same data and the same shared weights. Three pairs cannot
rank anything, because their least p is 0.25; six can (0.031). Fisher 1935, "The Design of
Experiments", §21, for the sign-flip test; Holm 1979 for several tests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from math import isfinite

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from posenc.analysis.student import between, t_below, t_quantile

RANKING = 6  # least number of paired seeds with which a difference can be significant at 5 %
EXACT = 20  # greatest number of seeds for which all 2ⁿ flips are computed
HUMP = 3.0  # logit of a right answer for a seed that learns the task: 95 % are right
MOST_DEGREES = 1_000.0  # degrees of freedom at which t is practically normal


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval."""

    value: float
    low: float
    high: float
    level: float = 0.95

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def interval(
    outcomes: Sequence[Bool[Tensor, "prompt"] | Float[Tensor, "prompt"]],
    level: float = 0.95,
    share: bool = False,
) -> Interval:
    """Estimate the mean over seeds and prompts, with a t confidence interval.

    - `outcomes`: for each seed a vector over the same prompts: True for a right answer, or a paired
      difference
    - `level`: confidence level
    - `share`: the mean is a share, whose interval is computed for its logit

    All seeds read the same prompts, so more seeds do not average the prompts out. The variance of
    the mean is s²(seed)/seeds + s²(prompt)/prompts − s²(rest)/(seeds · prompts), where s² are the
    variances of the means of seeds, of the means of prompts, and of the residuals. The degrees of
    freedom are those of Satterthwaite 1946. With one seed the interval is over prompts only.

    A share of 0 or 1 shows no spread. Its interval ends at the share at which all prompts would
    have the same outcome with probability (1 − level)/2 (Clopper and Pearson 1934).
    """
    table = _seeds_by_prompts(outcomes)
    mean, error, degrees = _crossed(table)
    half = t_quantile((1 + level) / 2, degrees.item()) * error
    low, high = _ends(mean, half, table.shape[1] if share else None, level)
    return Interval(mean.item(), low.item(), high.item(), level)


def _ends(
    mean: Float[Tensor, "*world"], half: Float[Tensor, "*world"], share_of: int | None, level: float
) -> tuple[Float[Tensor, "*world"], Float[Tensor, "*world"]]:
    """Return the two ends of a confidence interval, given its mean and half-width.

    The interval of a mean over `share_of` right or wrong outcomes is computed for its logit, and
    stays within 0 … 1.
    """
    if share_of is None:
        return mean - half, mean + half
    apart = half / (mean * (1 - mean))
    far = ((1 - level) / 2) ** (1 / share_of)
    low = torch.where(mean < 1, (mean.logit() - apart).sigmoid(), far)
    high = torch.where(mean > 0, (mean.logit() + apart).sigmoid(), 1 - far)
    return torch.where(mean > 0, low, 0.0), torch.where(mean < 1, high, 1.0)


def equivalence(outcomes: Sequence[Tensor], margin: float) -> float:
    """Return the p-value of an equivalence test: two one-sided t tests with this margin.

    Schuirmann 1987, "A comparison of the two one-sided tests procedure and the power approach".
    """
    mean, error, degrees = _crossed(_seeds_by_prompts(outcomes))
    room = margin - mean.abs().item()
    if error == 0:
        return float(room <= 0)
    return 1 - t_below(room / error.item(), degrees.item())


def _crossed(
    table: Float[Tensor, "*world seed prompt"],
) -> tuple[Float[Tensor, "*world"], Float[Tensor, "*world"], Float[Tensor, "*world"]]:
    """Return the mean of outcomes (seed, prompt), its standard error and degrees of freedom.

    The error is that of a mean over seeds and prompts, where all seeds have the same prompts.
    """
    seeds, prompts = table.shape[-2:]
    by_seed, by_prompt = table.mean(-1), table.mean(-2)
    mean = by_seed.mean(-1)
    # Residuals, which the variances of seeds and of prompts both contain
    rest = table - by_seed.unsqueeze(-1) - by_prompt.unsqueeze(-2) + mean[..., None, None]
    counts = max(1, seeds - 1), max(1, prompts - 1)
    parts = (
        (by_seed - mean.unsqueeze(-1)).square().sum(-1) / counts[0] / seeds,
        (by_prompt - mean.unsqueeze(-1)).square().sum(-1) / counts[1] / prompts,
        rest.square().sum((-2, -1)) / (counts[0] * counts[1]) / (seeds * prompts),
    )
    # By chance the difference can be smaller than the variance of seeds or of prompts alone
    variance = (parts[0] + parts[1] - parts[2]).maximum(parts[0]).maximum(parts[1])
    spread = parts[0].square() / counts[0] + parts[1].square() / counts[1]
    degrees = torch.where(spread > 0, variance.square() / spread, 1.0)
    return mean, variance.sqrt(), degrees.clamp(min(counts[0], counts[1]), MOST_DEGREES)


@cache
def coverage(seeds: int, prompts: int = 50, level: float = 0.95, worlds: int = 2_000) -> float:
    """Simulate how often confidence intervals contain the true mean; return the lowest share.

    The logit of a right answer is the sum of a mean, a normal number of the seed and a normal
    number of the prompt. Worlds differ in these: seeds vary more than prompts, as much, or less,
    and half, most or nearly all answers are right. In each world the interval is computed for
    shares, for paired differences of two shares, and for the logits with noise, which resemble
    bits. In two further worlds seeds are bimodal: half or a quarter of them learn the task.
    """
    random = torch.Generator().manual_seed(seeds)
    draw = partial(torch.randn, generator=random, dtype=torch.float64)
    uniform = partial(torch.rand, generator=random, dtype=torch.float64)
    z = torch.linspace(-8, 8, 2_001, dtype=torch.float64)
    density = torch.exp(-z.square() / 2)
    held = []
    for (by_seed, by_prompt), mean in product(
        ((1.0, 0.3), (0.5, 0.5), (0.3, 1.5)), (0.0, 1.5, 5.0)
    ):
        truths, right = [], []
        for middle in (mean, 0.0):
            logits = (
                middle + by_seed * draw(worlds, seeds, 1) + by_prompt * draw(worlds, 1, prompts)
            )
            right.append((uniform(logits.shape) < logits.sigmoid()).double())
            chances = (middle + (by_seed**2 + by_prompt**2) ** 0.5 * z).sigmoid()
            truths.append(((chances * density).sum() / density.sum()).item())
        held.append(_held(right[0], truths[0], level, share=True))
        held.append(_held(right[0] - right[1], truths[0] - truths[1], level))
        held.append(_held(logits + draw(logits.shape), 0.0, level))
    for able in (0.5, 0.25):
        learned = uniform((worlds, seeds, 1)) < able
        logits = torch.where(learned, HUMP, -HUMP) + 0.5 * draw(worlds, 1, prompts)
        right = (uniform(logits.shape) < logits.sigmoid()).double()
        chance = (((HUMP + 0.5 * z).sigmoid() * density).sum() / density.sum()).item()
        held.append(_held(right, able * chance + (1 - able) * (1 - chance), level, share=True))
    return min(held)


def _held(tables: Tensor, truth: float, level: float, share: bool = False) -> float:
    """Return the share of simulated studies whose confidence interval contains the true mean.

    - `tables`: outcomes (world, seed, prompt), one table for each simulated world
    """
    mean, error, degrees = _crossed(tables)
    half = between(*_quantiles(level), 1 / degrees) * error
    low, high = _ends(mean, half, tables.shape[-1] if share else None, level)
    return ((low <= truth) & (truth <= high)).double().mean().item()


@cache
def _quantiles(level: float) -> tuple[Tensor, Tensor]:
    """Tabulate quantiles of Student's t distribution by 1 / (degrees of freedom).

    In this variable the quantile is nearly linear.
    """
    inverse = torch.linspace(1 / MOST_DEGREES, 1, 64, dtype=torch.float64)
    return inverse, torch.tensor([t_quantile((1 + level) / 2, 1 / x) for x in inverse.tolist()])


def _seeds_by_prompts(outcomes: Sequence[Tensor]) -> Float[Tensor, "seed prompt"]:
    if not outcomes:
        raise ValueError("`outcomes` must have a vector for each seed, got no seed. Add one.")
    rows = [_vector(vector) for vector in outcomes]
    counts = {len(row) for row in rows}
    if len(counts) > 1:
        raise ValueError(
            f"`outcomes` must have the same number of prompts for each seed, got {sorted(counts)}."
            " Pass vectors of equal length."
        )
    return torch.stack(rows)


def sign_flip(differences: Sequence[float] | Tensor, seed: int = 0) -> float:
    """Return the two-sided p of a sign-flip test of paired differences.

    Exact for up to 20 pairs; for more, 100,000 random flips are drawn.

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
    # Sums that differ only by rounding count as equal
    return ((flips @ x).abs() >= seen - 1e-12 * x.abs().sum()).double().mean().item()


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Adjust the p-values of several comparisons by Holm's method.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'c': 0.06, 'b': 0.06}
    """
    adjusted, least = {}, 0.0
    for place, (name, value) in enumerate(sorted(p.items(), key=lambda item: item[1])):
        least = max(least, min(1.0, value * (len(p) - place)))
        adjusted[name] = least
    return adjusted


def seeds_for(comparisons: int, level: float = 0.05) -> int:
    """Return the least number of paired seeds with which a difference can be significant.

    - `comparisons`: number of tests that are corrected together by Holm's method

    The least p of n seeds is 2 / 2ⁿ, and Holm multiplies it by the number of comparisons.

    >>> seeds_for(1), seeds_for(2), seeds_for(6)
    (6, 7, 8)
    """
    return next(n for n in range(1, 1024) if comparisons * 2 / 2**n < level)


def may_rank(seeds: int) -> bool:
    """Test whether this number of paired seeds can show a significant difference."""
    return seeds >= RANKING


def _vector(values: Sequence[float] | Tensor) -> Tensor:
    x = torch.as_tensor(values, dtype=torch.float64)
    if x.ndim != 1 or not len(x) or not all(map(isfinite, x.tolist())):
        raise ValueError(
            f"the values must be a list of one or more finite numbers, got {values!r:.60}. Remove"
            " NaN and infinity."
        )
    return x
