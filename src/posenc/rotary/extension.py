"""Longer contexts without new frequencies being learned: pure functions θ → θ, to be composed.

In turns within the trained length, r = L θ / 2π, with s = `factor` and j = 0 … d/2 − 1:

    interpolate     θ' = θ / s
    ntk             θ' = θ · s^(−2j/(d−2))          the same as base' = base · s^(d/(d−2))
    dynamic_ntk     ntk with s' = s · max(1, length/L) − (s − 1)
    by_parts        θ' = (1 − γ) θ/s + γ θ,    γ = clip((r − slow) / (fast − slow), 0, 1)
    llama3          by_parts with slow = 1 and fast = 4
    yarn            by_parts, but γ falls evenly over the pairs j from r = `fast` to r = `slow`
    longrope        θ' = θ / λ,   λ = `short` up to the trained length, `long` beyond

Each takes all it needs as arguments and remembers nothing, so any order of lengths gives the same
frequencies. `ntk` and `yarn` take θ to be geometric, as `frequencies` makes it.

Chen et al. 2023, arXiv:2306.15595 (interpolation); bloc97 and emozilla 2023 (NTK-aware, dynamic);
Peng et al. 2023, "YaRN", arXiv:2309.00071, §3: the paper's ramp, eq. 18, is `by_parts`; the code
released with it, and every model since, ramps over pairs and rounds the ends. Ding et al. 2024,
"LongRoPE", arXiv:2402.13753. Llama 3.1's is in Meta's code.
"""

from collections.abc import Sequence
from math import ceil, floor, isfinite, log, pi, sqrt

from torch import Tensor, arange, float64, tensor

from posenc.shapes import Frequencies


def interpolate(freqs: Frequencies, factor: float) -> Frequencies:
    """Position interpolation: every wavelength `factor` times as long."""
    return freqs / _positive(factor, "factor")


def ntk(freqs: Frequencies, factor: float) -> Frequencies:
    """NTK-aware: the fastest pair stays, the slowest is interpolated in full, all between in part.

    >>> from posenc import frequencies
    >>> ntk(frequencies(8), 4.0) / frequencies(8)
    tensor([1.0000, 0.6300, 0.3969, 0.2500], dtype=torch.float64)
    """
    pairs = _several(freqs, "NTK-aware scaling")
    return freqs * _positive(factor, "factor") ** (-_index(freqs) / (pairs - 1))


def dynamic_ntk(freqs: Frequencies, length: int, trained: int, factor: float) -> Frequencies:
    """NTK-aware, by as much as a text of `length` tokens needs; up to `trained` nothing changes.

    All keys of a text must be turned by the same frequencies: a cache of turned keys is no longer
    valid when the text has grown past `trained`.
    """
    _positive(factor, "factor")
    grown = max(1.0, _positive(length, "length") / _positive(trained, "trained"))
    return ntk(freqs, factor * grown - (factor - 1))


def by_parts(
    freqs: Frequencies, factor: float, trained: int, slow: float = 1.0, fast: float = 32.0
) -> Frequencies:
    """NTK by parts, the ramp of the YaRN paper: pairs of more than `fast` turns stay as they are,
    those of fewer than `slow` are interpolated.
    """
    if not 0 < slow <= fast or not isfinite(fast):
        raise ValueError(f"turns must be 0 < `slow` ≤ `fast`, got {slow} and {fast}.")
    turns = turned(freqs, _positive(trained, "trained"))
    # where the two ends are one (Llama 4), nothing lies between them
    kept = (turns - slow) / (fast - slow) if fast > slow else (turns > slow).to(freqs)
    return _blend(freqs, factor, kept.clamp(0, 1))


def llama3(
    freqs: Frequencies, factor: float, trained: int, low: float = 1.0, high: float = 4.0
) -> Frequencies:
    """Llama 3.1's scaling: NTK by parts, with the ends `low_freq_factor` and `high_freq_factor`."""
    return by_parts(freqs, factor, trained, slow=low, fast=high)


def yarn(
    freqs: Frequencies,
    factor: float,
    trained: int,
    fast: float = 32.0,
    slow: float = 1.0,
    rounded: bool = True,
) -> Frequencies:
    """YaRN as deployed; `rounded` ends of the ramp, except where a model says `truncate: false`.

    Give the model `gain=yarn_gain(factor)` as well.
    """
    if not 0 < slow <= fast or not isfinite(fast):
        raise ValueError(f"turns must be 0 < `slow` ≤ `fast`, got {slow} and {fast}.")
    pairs = _several(freqs, "YaRN")
    turns = turned(freqs, _positive(trained, "trained"))
    step = log(turns[0] / turns[1])
    first, last = (log(turns[0] / ends) / step for ends in (fast, slow))  # the pairs of such turns
    if rounded:
        first, last = floor(first), ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    if first == last:
        last += 0.001
    return _blend(freqs, factor, 1 - ((_index(freqs) - first) / (last - first)).clamp(0, 1))


def yarn_gain(factor: float, mscale: float = 1.0, mscale_all_dim: float = 0.0) -> float:
    """The factor of cos and sin: g(mscale) / g(mscale_all_dim), g(m) = 0.1 m ln s + 1 for s > 1.

    >>> round(yarn_gain(4.0), 6)
    1.138629
    """
    return _grown(factor, mscale) / _grown(factor, mscale_all_dim)


def yarn_logit_gain(factor: float, mscale_all_dim: float) -> float:
    """DeepSeek's second factor, of the softmax scale: g(mscale_all_dim)².

    With mscale = mscale_all_dim the first is 1, and this one alone sharpens the softmax: by turned
    and unturned channels alike.

    >>> round(yarn_logit_gain(40.0, 1.0), 6)
    1.873854
    """
    return _grown(factor, mscale_all_dim) ** 2


def longrope(
    freqs: Frequencies, length: int, trained: int, short: Sequence[float], long: Sequence[float]
) -> Frequencies:
    """LongRoPE: a searched factor for each pair, other ones for texts longer than `trained`.

    A cache of keys turned by the short list is no longer valid when the text outgrows it.
    """
    factors = short if _positive(length, "length") <= _positive(trained, "trained") else long
    name = "short" if factors is short else "long"
    if len(factors) != freqs.shape[-1]:
        pairs = freqs.shape[-1]
        raise ValueError(f"`{name}` needs a factor for each of {pairs} pairs, got {len(factors)}.")
    for factor in factors:
        _positive(factor, name)
    return freqs / tensor(factors, dtype=float64, device=freqs.device)


def longrope_gain(factor: float, trained: int) -> float:
    """The factor of cos and sin: √(1 + ln s / ln L), for s > 1.

    >>> round(longrope_gain(32.0, 4096), 6)
    1.190238
    """
    return sqrt(1 + log(factor) / log(trained)) if _positive(factor, "factor") > 1 else 1.0


def turned(freqs: Frequencies, length: float) -> Tensor:
    """How often each pair turns in full within `length` tokens."""
    return length * freqs / (2 * pi)


def _blend(freqs: Frequencies, factor: float, kept: Tensor) -> Frequencies:
    return (1 - kept) * interpolate(freqs, factor) + kept * freqs


def _grown(factor: float, mscale: float) -> float:
    return 0.1 * mscale * log(factor) + 1 if _positive(factor, "factor") > 1 else 1.0


def _index(freqs: Frequencies) -> Tensor:
    return arange(freqs.shape[-1], dtype=freqs.dtype, device=freqs.device)


def _several(freqs: Frequencies, who: str) -> int:
    pairs = freqs.shape[-1]
    if pairs < 2:
        raise ValueError(f"{who} runs from the fastest pair to the slowest: got {pairs} pair.")
    return pairs


def _positive(value: float, name: str) -> float:
    if not (isfinite(value) and value > 0):
        raise ValueError(f"`{name}` must be a positive number, got {value}.")
    return value
