"""Measure what rotary frequencies tell apart over a length, and what stretching did to them.

    λⱼ = 2π/θⱼ                        wavelength, in tokens
    rⱼ = L θⱼ / 2π                    turns within L tokens; below 1 a pair never completes a turn
    d_c = 2 · #{j : rⱼ ≥ 1}           channels whose pair completes a turn: the critical dimension,
                                      2 ⌈d/2 · log_base(L/2π)⌉
    B(m) = Σⱼ cos(m θⱼ)               similarity at distance m of a key that is like the query

Beyond L, pairs past the critical dimension reach angles that training has never shown. While
B(m) ≥ 0, a like key scores at least as high as an unrelated one, on average. Up to which m that
holds depends on the base: a text of L tokens needs a smallest base.

Liu et al. 2023, "Scaling Laws of RoPE-based Extrapolation", arXiv:2310.05209, for d_c;
Men et al. 2024, "Base of RoPE Bounds Context Length", arXiv:2405.14591, eq. 8 and table 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import isqrt, log10, pi
from typing import Literal

from torch import Tensor, arange, cat, float64, linspace, logspace

from posenc.core.frequencies import frequencies
from posenc.core.shapes import Frequencies
from posenc.encodings.rotary.extension import (
    by_parts,
    dynamic_ntk,
    interpolate,
    llama3,
    longrope,
    longrope_gain,
    ntk,
    turned,
    yarn,
    yarn_gain,
)

ROUGH_ERROR = 2e-4  # bound on the error of float32 a pair, in a sum over up to 2,048 pairs

Change = Literal["kept", "stretched", "interpolated", "still"]


@dataclass(frozen=True)
class Pair:
    """One pair of channels over the trained length, before and after stretching."""

    wavelength: float  # tokens, as it turns now; infinite where it does not
    turns: float  # within the trained length, as it was trained
    slower: float  # how many times slower it turns now
    change: Change


@dataclass(frozen=True)
class Extension:
    """The pairs after one method of extension."""

    pairs: list[Pair]
    gain: float  # of cos and sin
    reach: int  # the first distance of B < 0; `target` if there is none before


@dataclass(frozen=True)
class Extended:
    """Frequencies trained on `trained` tokens, stretched to `target` tokens by each method."""

    trained: int
    factor: float
    target: int
    critical: int  # channels that complete a turn within the trained length, of all
    channels: int
    methods: dict[str, Extension]  # "none" first: as they were trained


def extended(
    freqs: Frequencies, trained: int, factor: float, long: Sequence[float] | None = None
) -> Extended:
    """Extend by every method with its usual settings; LongRoPE only with its factors, `long`."""
    target = round(trained * factor)
    methods = {
        name: Extension(pairs(freqs, now, trained, factor), gain, reach(now, target))
        for name, (now, gain) in stretched(freqs, trained, factor, long).items()
    }
    channels = 2 * freqs.shape[-1]
    return Extended(trained, factor, target, critical(freqs, trained), channels, methods)


def stretched(
    freqs: Frequencies, trained: int, factor: float, long: Sequence[float] | None = None
) -> dict[str, tuple[Frequencies, float]]:
    """The frequencies and the gain of cos and sin after each method with its usual settings.

    Methods that compare the fastest pair with the slowest are left out where there is only one.
    """
    target = round(trained * factor)
    methods = {"none": (freqs, 1.0), "interpolate": (interpolate(freqs, factor), 1.0)}
    if freqs.shape[-1] > 1:
        methods["ntk"] = ntk(freqs, factor), 1.0
        methods["dynamic_ntk"] = dynamic_ntk(freqs, target, trained, factor), 1.0
    methods["by_parts"] = by_parts(freqs, factor, trained), 1.0
    if freqs.shape[-1] > 1:
        methods["yarn"] = yarn(freqs, factor, trained), yarn_gain(factor)
    methods["llama3"] = llama3(freqs, factor, trained), 1.0
    if long is not None:
        slow = longrope(freqs, target, trained, [1.0] * freqs.shape[-1], long)
        methods["longrope"] = slow, longrope_gain(factor, trained)
    return methods


def critical(freqs: Frequencies, trained: int) -> int:
    """The critical dimension d_c: how many channels belong to pairs that complete a turn.

    >>> critical(frequencies(128), 4096)  # of Llama 2
    92
    """
    return 2 * int((turned(freqs.abs(), trained) >= 1).sum())


def pairs(before: Frequencies, after: Frequencies, trained: int, factor: float) -> list[Pair]:
    """Compare each pair before and after stretching.

    A pair is kept (within 1 %), interpolated (by the whole `factor`) or stretched (by less);
    "still" are pairs that do not turn.
    """
    rows = []
    for was, now in zip(before.tolist(), after.tolist(), strict=True):
        slower = was / now if now else float("inf")
        if not now:
            change = "still"
        elif abs(slower - 1) <= 0.01:
            change = "kept"
        else:
            change = "interpolated" if slower >= 0.99 * factor else "stretched"
        wavelength = 2 * pi / abs(now) if now else float("inf")
        rows.append(Pair(wavelength, trained * abs(was) / (2 * pi), slower, change))
    return rows


def similarity(freqs: Frequencies, length: int) -> Tensor:
    """Compute B(m) for m = 0 … length − 1, in float64.

    With m = a·n + b, cos((a·n + b)θ) = cos(a·n·θ) cos(bθ) − sin(a·n·θ) sin(bθ): a matrix product.
    """
    n = isqrt(length - 1) + 1
    theta = freqs.double()
    # coarse: angles of the multiples of n, fine: of 0 … n − 1, both (n, pair); summing over pairs,
    # the products are (a, b), which flattened is m = a n + b
    coarse, fine = (step * arange(n, dtype=float64)[:, None] * theta for step in (n, 1))
    product = coarse.cos() @ fine.cos().mT - coarse.sin() @ fine.sin().mT
    return product.flatten()[:length]


def reach(freqs: Frequencies, limit: int = 2**21) -> int:
    """The first distance at which B turns negative; `limit` if it does not before."""
    start, end = 0, min(64, limit)
    while start < limit:
        first = _first_negative(freqs.double(), start, end)
        if first is not None:
            return first
        start, end = end, min(8 * end, limit)
    return limit


@cache
def smallest_base(dim: int, length: int, step: float = 1.01) -> float:
    """The smallest base with which B(m) ≥ 0 for all m < `length`, among 2, 2·`step`, 2·`step`², …

    It is found by trying them one after another; infinite, if no base below 10¹⁵ is enough.

    >>> smallest_base(128, 4096) < 30_000 < smallest_base(128, 8192)
    True
    """
    distances = logspace(0, log10(max(length - 1, 1)), 256, dtype=float64).round().unique()
    far = linspace(0.8 * length, length - 1, 256, dtype=float64).round().unique()
    negative: int | None = None  # the distance at which the last candidate failed
    base = 2.0
    while base < 1e15:
        bases = base * step ** arange(64, dtype=float64)
        # One distance is enough to fail, so most fail here: at a few, then at all of them.
        for tried in (distances[:: max(len(distances) // 16, 1)], distances, far):
            theta = bases[:, None] ** (-arange(0, dim, 2, dtype=float64) / dim)
            sums = (tried[:, None] * theta[:, None]).cos().sum(-1)
            bases = bases[(sums >= 0).all(-1)]
        for candidate in bases.tolist():
            negative = _negative_distance(frequencies(dim, candidate), length, negative)
            if negative is None:
                return candidate
        base *= step**64
    return float("inf")


def _negative_distance(freqs: Frequencies, length: int, near: int | None) -> int | None:
    """A distance below `length` with B(m) < 0; None if there is none."""
    if near is not None:  # where a slightly smaller base failed, this one mostly does too
        reach = max(64, near // 100)
        m = _first_negative(freqs, max(near - reach, 0), min(near + reach, length))
        if m is not None:
            return m
    end, rows = length, 1024  # downwards, since B is smallest at large distances
    while end > 0:
        start = max(end - rows, 0)
        m = _first_negative(freqs, start, end)
        if m is not None:
            return m
        end, rows = start, 4 * rows
    return None


def _first_negative(freqs: Frequencies, start: int, end: int) -> int | None:
    """The first m of start … end − 1 with B(m) < 0: roughly in float32, then exactly in doubt."""
    rough, doubt = _rough_similarity(freqs, start, end), ROUGH_ERROR * len(freqs)
    if float(rough.min()) > doubt:
        return None
    low = (rough <= doubt).nonzero().flatten()
    sure = (rough[low] < -doubt).nonzero().flatten()
    low = low[: int(sure[0]) + 1] if len(sure) else low
    below = (((low[:, None] + start) * freqs).cos().sum(-1) < 0).nonzero().flatten()
    return int(low[below[0]]) + start if len(below) else None


def _rough_similarity(freqs: Frequencies, start: int, end: int) -> Tensor:
    """Compute B(m) for m = start … end − 1, as `similarity` does, its product in float32."""
    n = isqrt(end - start - 1) + 1
    coarse = (start + n * arange(n, dtype=float64))[:, None] * freqs
    fine = arange(n, dtype=float64)[:, None] * freqs
    left, right = cat((coarse.cos(), -coarse.sin()), -1), cat((fine.cos(), fine.sin()), -1)
    return (left.float() @ right.float().mT).flatten()[: end - start]
