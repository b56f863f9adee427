"""Analyse RoPE's frequencies, before and after the context is extended.

    λⱼ = 2π/θⱼ                        wavelength, in tokens
    rⱼ = L θⱼ / 2π                    turns within L tokens; below 1 a pair never completes a turn
    d_c = 2 · #{j : rⱼ ≥ 1}           channels whose pair completes a turn: the critical dimension,
                                      2 ⌈d/2 · log_base(L/2π)⌉
    B(m) = Σⱼ cos(m θⱼ)               similarity at distance m of a key equal to the query

Beyond L, pairs past the critical dimension have angles that training did not contain. While
B(m) ≥ 0, an equal key scores at least as high as an unrelated one, on average. The largest such m
grows with the base, so a text of L tokens needs a minimal base.

Liu et al. 2023, "Scaling Laws of RoPE-based Extrapolation", arXiv:2310.05209, for d_c;
Men et al. 2024, "Base of RoPE Bounds Context Length", arXiv:2405.14591, eq. 8 and table 2.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import cos, inf, pi, sin
from operator import mul
from pathlib import Path
from typing import Literal

from posenc.encodings.rotary.theta import (
    Theta,
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

LONGEST = 2**21  # tokens, the largest distance in sums
BASES = [2 * 1.01**step for step in range(3402)]  # bases below 10¹⁵ in the search
BLOCKS = 4096, 1024, 256, 64, 16, 4  # sizes of blocks of distances in the search
FASTEST = 1.3  # radians in half a block up to which Taylor's formula gives a useful bound
# A sum of cosines nearer to 0 than this may have either sign because of rounding
ROUNDING = 1e-6

Change = Literal["kept", "stretched", "interpolated", "still"]


@dataclass(frozen=True)
class Pair:
    """The rotation of one channel pair over the trained length, before and after an extension."""

    wavelength: float  # tokens per turn after the extension; infinite if it is not rotated
    turns: float  # within the trained length, before the extension
    slower: float  # old θ divided by new θ
    change: Change


@dataclass(frozen=True)
class ExtendedPairs:
    """The rotary pairs of a model after one method of context extension."""

    pairs: list[Pair]
    gain: float  # factor of cos and sin
    reach: int  # the first distance with B < 0; `target` if there is none below it


@dataclass(frozen=True)
class Extended:
    """The trained RoPE frequencies, and those of each extension method for `target` tokens."""

    trained: int
    factor: float
    target: int
    critical: int  # channels that complete a turn within the trained length
    channels: int  # all channels
    methods: dict[str, ExtendedPairs]  # the first, "none", is without an extension


def extended(
    freqs: Theta, trained: int, factor: float, long: Sequence[float] | None = None
) -> Extended:
    """Extend RoPE's frequencies by each context extension method with its default settings.

    LongRoPE is included only if `long` is given.
    """
    target = round(trained * factor)
    methods = {
        name: ExtendedPairs(pairs(freqs, now, trained, factor), gain, reach(now, target))
        for name, (now, gain) in stretched(freqs, trained, factor, long).items()
    }
    channels = 2 * len(freqs)
    return Extended(trained, factor, target, critical(freqs, trained), channels, methods)


def stretched(
    freqs: Theta, trained: int, factor: float, long: Sequence[float] | None = None
) -> dict[str, tuple[Theta, float]]:
    """Return, for each extension method, the new frequencies and the factor of cos and sin.

    All methods have their default settings.

    With a single pair, methods that need a fastest and a slowest pair are left out.
    """
    target = round(trained * factor)
    methods = {"none": (freqs, 1.0), "interpolate": (interpolate(freqs, factor), 1.0)}
    if len(freqs) > 1:
        methods["ntk"] = ntk(freqs, factor), 1.0
        methods["dynamic_ntk"] = dynamic_ntk(freqs, target, trained, factor), 1.0
    methods["by_parts"] = by_parts(freqs, factor, trained), 1.0
    if len(freqs) > 1:
        methods["yarn"] = yarn(freqs, factor, trained), yarn_gain(factor)
    methods["llama3"] = llama3(freqs, factor, trained), 1.0
    if long is not None:
        slow = longrope(freqs, target, trained, [1.0] * len(freqs), long)
        methods["longrope"] = slow, longrope_gain(factor, trained)
    return methods


def critical(freqs: Theta, trained: int) -> int:
    """Return the critical dimension: the number of channels in pairs that turn fully in training.

    >>> from posenc.encodings.rotary.theta import frequencies
    >>> critical(frequencies(128, 10_000.0), 4096)  # of Llama 2
    92
    """
    return 2 * sum(abs(turns) >= 1 for turns in turned(freqs, trained))


def pairs(before: Theta, after: Theta, trained: int, factor: float) -> list[Pair]:
    """Compare each rotary pair before and after an extension.

    A pair is kept (within 1 %), interpolated (by the whole `factor`), stretched (by less), or
    "still" if it is not rotated.
    """
    rows = []
    for was, now in zip(before, after, strict=True):
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


def reach(freqs: Theta, limit: int = LONGEST) -> int:
    """Return the first distance at which B(m) = Σⱼ cos(m θⱼ) is negative, or `limit` if none is."""
    return _reach(tuple(sorted(map(abs, freqs), reverse=True)), limit)


@cache
def _reach(theta: tuple[float, ...], limit: int) -> int:
    """Return the first distance at which Σⱼ cos(m θⱼ) is negative, or `limit` if none is.

    θ must be in decreasing order.

    The search uses matrix products if torch is already imported.

    Matrix products are 20 times as fast, but importing torch takes about a second. Both searches
    return the same distance.
    """
    if "torch" in sys.modules:
        from posenc.analysis.base_search import first_negative

        return first_negative(theta, limit)
    found = _first_negative(theta, [_Blocks(theta, size) for size in BLOCKS], 0, limit)
    return limit if found is None else found


@cache
def smallest_base(dim: int, length: int) -> float:
    """Return the smallest RoPE base with Σⱼ cos(m θⱼ) ≥ 0 at all distances m < `length`.

    The result is exact to 1 %.

    The result is infinite if no base below 10¹⁵ is enough. Common sizes of heads are in a table,
    which `tools/bases.py` generates; for others a search imports torch.

    >>> smallest_base(128, 4096) < 30_000 < smallest_base(128, 8192)
    True
    """
    for place, enough in _enough().get(str(dim), ()):
        if enough >= length:
            return inf if place is None else BASES[place]
    from posenc.analysis.base_search import search

    place = search(dim, length, BASES)
    return inf if place is None else BASES[place]


@cache
def _enough() -> dict[str, list[tuple[int | None, int]]]:
    """Read the packaged table of RoPE bases, each with the longest text for which it is enough.

    The keys are head sizes. "Enough" means that Σⱼ cos(m θⱼ) is never negative.
    """
    return json.loads(Path(__file__).with_name("smallest_bases.json").read_text("utf-8"))


class _Blocks:
    """A lower bound of B(m) = Σⱼ cos(m θⱼ) over a block of `size` distances, by Taylor's formula.

    Cosines of pairs that are too fast are bounded by −1. For the others, with c the middle and
    |x| ≤ h,

        Σ cos((c + x)θ) ≥ Σ cos(cθ) − x Σ θ sin(cθ) − x²/2 Σ θ² cos(cθ) − h³/6 Σ θ³
    """

    def __init__(self, theta: Sequence[float], size: int):
        self.size, self.half = size, size / 2
        self.slow = [turn for turn in theta if turn * self.half <= FASTEST]
        self.squares = [turn * turn / 2 for turn in self.slow]
        self.lost = len(theta) - len(self.slow) + sum((t * self.half) ** 3 for t in self.slow) / 6

    def lowest(self, start: int) -> float:
        angles = [(start + self.half) * turn for turn in self.slow]
        cosines = [*map(cos, angles)]
        middle = sum(cosines) - self.lost
        if middle <= 0:
            return middle
        slope = abs(sum(map(mul, self.slow, map(sin, angles))))
        bend = -sum(map(mul, self.squares, cosines))
        # The minimum of the parabola is within the block
        if 2 * bend * self.half > slope:
            return middle - slope * slope / (4 * bend)
        return middle - slope * self.half + bend * self.half**2


def _first_negative(
    theta: Sequence[float], blocks: Sequence[_Blocks], start: int, end: int
) -> int | None:
    """Return the first distance m in start … end − 1 at which Σⱼ cos(m θⱼ) is negative, or None."""
    if not blocks:
        sums = ((m, sum([cos(m * turn) for turn in theta])) for m in range(start, end))
        return next((m for m, similarity in sums if similarity < 0), None)
    for m in range(start, end, blocks[0].size):
        if blocks[0].lowest(m) < ROUNDING:
            found = _first_negative(theta, blocks[1:], m, min(m + blocks[0].size, end))
            if found is not None:
                return found
    return None
