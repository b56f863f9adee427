"""Compute context extension with lists of floats, so that `posenc inspect` need not load torch.

These are the formulas of `core/frequencies.py` and `extension.py`, which give the sources, for one
vector of θ, fastest pair first. Tests compare each with its tensor form. Values of a config are
checked when it is read, so these functions check only that θ stays finite.
"""

from collections.abc import Sequence
from math import ceil, floor, inf, isfinite, log, pi, sqrt

Theta = list[float]  # radians per token, one number per pair


def frequencies(dim: int, base: float) -> Theta:
    """Return RoPE's frequencies θⱼ = base^(−2j/d).

    >>> frequencies(4, 10_000.0)
    [1.0, 0.01]
    """
    return [_power(base, -(2 * j) / dim) for j in range(dim // 2)]


def interpolate(theta: Theta, factor: float) -> Theta:
    return _finite([turn / factor for turn in theta], factor)


def ntk(theta: Theta, factor: float) -> Theta:
    """Return NTK-aware θ: the fastest pair is unchanged, the slowest is divided by `factor`."""
    last = len(theta) - 1
    if not last:
        raise ValueError("`theta` must have at least 2 pairs for NTK-aware scaling, got 1.")
    return _finite([turn * _power(factor, -j / last) for j, turn in enumerate(theta)], factor)


def dynamic_ntk(theta: Theta, length: int, trained: int, factor: float) -> Theta:
    return ntk(theta, factor * max(1.0, length / trained) - (factor - 1))


def by_parts(
    theta: Theta, factor: float, trained: int, slow: float = 1.0, fast: float = 32.0
) -> Theta:
    turns = turned(theta, trained)
    if fast > slow:
        kept = [min(max((turn - slow) / (fast - slow), 0.0), 1.0) for turn in turns]
    else:
        # If both ends are equal (Llama 4), there is no ramp
        kept = [float(turn > slow) for turn in turns]
    return _blend(theta, factor, kept)


def llama3(theta: Theta, factor: float, trained: int, low: float = 1.0, high: float = 4.0) -> Theta:
    return by_parts(theta, factor, trained, slow=low, fast=high)


def yarn(
    theta: Theta,
    factor: float,
    trained: int,
    fast: float = 32.0,
    slow: float = 1.0,
    rounded: bool = True,
) -> Theta:
    """Return the frequencies of YaRN, as its released code computes them."""
    if len(theta) < 2:
        raise ValueError("`theta` must have at least 2 pairs for YaRN, got 1.")
    first_two = turned(theta[:2], trained)
    step = log(first_two[0] / first_two[1])
    # The fractional pair indices with `fast` and with `slow` turns
    first, last = (log(first_two[0] / ends) / step for ends in (fast, slow))
    if rounded:
        first, last = floor(first), ceil(last)
    first, last = max(first, 0), min(last, 2 * len(theta) - 1)
    if first == last:
        last += 0.001
    ramp = [(j - first) / (last - first) for j in range(len(theta))]
    return _blend(theta, factor, [1 - min(max(part, 0.0), 1.0) for part in ramp])


def longrope(
    theta: Theta, length: int, trained: int, short: Sequence[float], long: Sequence[float]
) -> Theta:
    factors = short if length <= trained else long
    return _finite([turn / by for turn, by in zip(theta, factors, strict=True)], min(factors))


def yarn_gain(factor: float) -> float:
    return 0.1 * log(factor) + 1 if factor > 1 else 1.0


def longrope_gain(factor: float, trained: int) -> float:
    return sqrt(1 + log(factor) / log(trained)) if factor > 1 else 1.0


def p_rope(theta: Theta, share: float) -> Theta:
    turning = int(share * len(theta))
    return [turn if j < turning else 0.0 for j, turn in enumerate(theta)]


def turned(theta: Sequence[float], length: float) -> list[float]:
    """Return the number of full turns that each pair makes within `length` tokens."""
    return [length * turn / (2 * pi) for turn in theta]


def _blend(theta: Theta, factor: float, kept: list[float]) -> Theta:
    """Blend interpolated and unchanged frequencies: (1 − kept) · θ / factor + kept · θ."""
    slow = interpolate(theta, factor)
    return [(1 - k) * new + k * turn for k, new, turn in zip(kept, slow, theta, strict=True)]


def _power(base: float, exponent: float) -> float:
    try:
        return base**exponent
    except OverflowError:
        # Tensors overflow to infinity
        return inf


def _finite(theta: Theta, factor: float) -> Theta:
    if not all(map(isfinite, theta)):
        raise ValueError(f"`factor` must keep θ finite, got {factor}. Use a factor nearer to 1.")
    return theta
