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
from math import isqrt, log10, pi
from typing import Literal

from torch import Tensor, arange, float64, logspace

from posenc.rotary.extension import (
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
from posenc.shapes import Frequencies
from posenc.theta import frequencies

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
    made = {
        "none": (freqs, 1.0),
        "interpolate": (interpolate(freqs, factor), 1.0),
        "ntk": (ntk(freqs, factor), 1.0),
        "dynamic_ntk": (dynamic_ntk(freqs, target, trained, factor), 1.0),
        "by_parts": (by_parts(freqs, factor, trained), 1.0),
        "yarn": (yarn(freqs, factor, trained), yarn_gain(factor)),
        "llama3": (llama3(freqs, factor, trained), 1.0),
    }
    if long is not None:
        slow = longrope(freqs, target, trained, [1.0] * freqs.shape[-1], long)
        made["longrope"] = slow, longrope_gain(factor, trained)
    methods = {
        name: Extension(pairs(freqs, now, trained, factor), gain, reach(now, target))
        for name, (now, gain) in made.items()
    }
    channels = 2 * freqs.shape[-1]
    return Extended(trained, factor, target, critical(freqs, trained), channels, methods)


def critical(freqs: Frequencies, trained: int) -> int:
    """The critical dimension d_c: how many channels belong to pairs that complete a turn.

    >>> critical(frequencies(128), 4096)  # of Llama 2
    92
    """
    return 2 * int((turned(freqs.abs(), trained) >= 1).sum())


def pairs(before: Frequencies, after: Frequencies, trained: int, factor: float) -> list[Pair]:
    """What became of each pair: kept (within 1 %), interpolated (by the whole `factor`), or
    stretched by less; "still" are pairs that do not turn.
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
    """B(m) for m = 0 … length − 1, in float64.

    With m = a·n + b, cos((a·n + b)θ) = cos(a·n·θ) cos(bθ) − sin(a·n·θ) sin(bθ): a matrix product.
    """
    n = isqrt(length - 1) + 1
    theta = freqs.double()
    coarse, fine = (step * arange(n, dtype=float64)[:, None] * theta for step in (n, 1))
    made = coarse.cos() @ fine.cos().mT - coarse.sin() @ fine.sin().mT
    return made.flatten()[:length]


def reach(freqs: Frequencies, most: int = 2**21) -> int:
    """The first distance at which B turns negative; `most` if it does not before."""
    length = min(64, most)
    while True:
        below = (similarity(freqs, length) < 0).nonzero()
        if len(below):
            return int(below[0])
        if length >= most:
            return most
        length = min(8 * length, most)


def smallest_base(dim: int, length: int, step: float = 1.01) -> float:
    """The smallest base with which B(m) ≥ 0 for all m < `length`, among powers of `step`.

    >>> smallest_base(128, 4096) < 30_000 < smallest_base(128, 8192)
    True
    """
    some = logspace(0, log10(max(length - 1, 1)), 256, dtype=float64).round().unique()
    base = 2.0
    while base < 1e15:
        bases = base * step ** arange(64, dtype=float64)
        theta = bases[:, None] ** (-arange(0, dim, 2, dtype=float64) / dim)
        sums = (some[:, None] * theta[:, None]).cos().sum(-1)  # most fail here: one m is enough
        for candidate in bases[(sums >= 0).all(-1)].tolist():
            if reach(frequencies(dim, candidate), length) >= length:
                return candidate
        base = float(bases[-1]) * step
    return float("inf")
