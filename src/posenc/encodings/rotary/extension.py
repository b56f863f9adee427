"""Context extension: functions θ → θ that change RoPE's frequencies for longer texts.

r = L θ / 2π is the number of turns within the trained length L, s = `factor`, j = 0 … d/2 − 1:

    interpolate     θ' = θ / s
    ntk             θ' = θ · s^(−2j/(d−2))          the same as base' = base · s^(d/(d−2))
    dynamic_ntk     ntk with s' = s · max(1, length/L) − (s − 1)
    by_parts        θ' = (1 − γ) θ/s + γ θ,    γ = clip((r − slow) / (fast − slow), 0, 1)
    llama3          by_parts with slow = 1 and fast = 4
    yarn            by_parts, but γ falls linearly in the pair j from r = `fast` to r = `slow`
    longrope        θ' = θ / λ,   λ = `short` up to the trained length, `long` beyond
    riflex          θ'_k = share · 2π / length for one pair k; the others are unchanged

The functions have no state, so frequencies do not depend on the order of lengths. `ntk` and `yarn`
assume that θ is geometric, like the result of `frequencies`.

For a matrix (axis, pair), the speed |θⱼ| of a pair is used, its angle per unit along its direction,
and the direction is unchanged. Pairs of equal speed have the same j: in `axial` the fastest pair of
every axis has j = 0, and each axis has d/2n pairs; `mrope` divides one geometric sequence among its
axes.

Chen et al. 2023, arXiv:2306.15595 (interpolation); bloc97 and emozilla 2023 (NTK-aware, dynamic);
Peng et al. 2023, "YaRN", arXiv:2309.00071, §3: the paper's ramp, eq. 18, is `by_parts`; the code
released with it, and every model since, ramps over pairs and rounds the ends. Ding et al. 2024,
"LongRoPE", arXiv:2402.13753. Llama 3.1's is in Meta's code. Zhao et al. 2025, "RIFLEx",
arXiv:2502.15894, eq. 7 and 8; the share of 0.9 is in its code alone.
"""

from collections.abc import Sequence
from math import ceil, floor, log, pi, sqrt

from jaxtyping import Float
from torch import Tensor, arange, float64, tensor, where

from posenc.compat.tracing import has_values
from posenc.core.frequencies import theta
from posenc.core.shapes import Frequencies
from posenc.support.arguments import brief, number, positive

Theta = Frequencies | Float[Tensor, "axis head pair"]  # the second are RoPE-Mixed's

# Relative difference up to which speeds are equal; error of j up to which speeds are geometric
ALIKE, APART = 1e-5, 1e-2


def interpolate(freqs: Theta, factor: float) -> Theta:
    """Return θ / factor (position interpolation): every wavelength becomes `factor` times as long.

    - `freqs`: θ in radians per token, a vector (pair,) or a matrix (axis, pair)
    - `factor`: positive number, new length / trained length

    Raises ValueError for a `factor` that makes θ infinite.

    >>> from posenc import frequencies
    >>> interpolate(frequencies(4), 4.0)
    tensor([0.2500, 0.0025], dtype=torch.float64)

    Chen et al. 2023, arXiv:2306.15595.
    """
    return _finite(_theta(freqs) / positive(factor, "factor"), factor)


def ntk(freqs: Theta, factor: float) -> Theta:
    """Return NTK-aware θ: the fastest pair is unchanged, the slowest is divided by `factor`.

    - `freqs`: θ in radians per token, a geometric sequence of pairs
    - `factor`: positive number, new length / trained length

    Raises ValueError for fewer than two pairs, and for a matrix with speeds that are not geometric.

    >>> from posenc import frequencies
    >>> ntk(frequencies(8), 4.0) / frequencies(8)
    tensor([1.0000, 0.6300, 0.3969, 0.2500], dtype=torch.float64)
    """
    index, pairs = _ladder(_theta(freqs), "NTK-aware scaling")
    return _finite(freqs * positive(factor, "factor") ** (-index / (pairs - 1)), factor)


def dynamic_ntk(freqs: Theta, length: int, trained: int, factor: float) -> Theta:
    """Return NTK-aware θ for a text of `length` tokens; θ is unchanged up to `trained` tokens.

    - `freqs`: θ in radians per token, a geometric sequence of pairs
    - `length`: tokens of the text
    - `trained`: tokens of the longest text in training
    - `factor`: s; the factor of `ntk` is s · length / trained − (s − 1)

    All keys of a text must be rotated by the same frequencies, so a cache of rotated keys becomes
    invalid when the text grows past `trained`.

    >>> from posenc import frequencies
    >>> dynamic_ntk(frequencies(4), length=512, trained=512, factor=2.0)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    positive(factor, "factor")
    grown = max(1.0, positive(length, "length") / positive(trained, "trained"))
    return ntk(freqs, factor * grown - (factor - 1))


def by_parts(
    freqs: Theta, factor: float, trained: int, slow: float = 1.0, fast: float = 32.0
) -> Theta:
    """Return θ of NTK-by-parts: slow pairs are interpolated, fast pairs are kept, as in YaRN.

    Between them, a linear ramp blends the two.

    - `freqs`: θ in radians per token
    - `factor`: positive number, new length / trained length
    - `trained`: tokens of the longest text in training
    - `slow`: pairs with fewer full turns within `trained` are interpolated; 1 by default
    - `fast`: pairs with more full turns are unchanged; 32 by default

    Raises ValueError unless 0 < `slow` ≤ `fast`.

    >>> from posenc import frequencies
    >>> by_parts(frequencies(4), 4.0, trained=512)
    tensor([1.0000, 0.0025], dtype=torch.float64)

    Peng et al. 2023, arXiv:2309.00071, eq. 18.
    """
    _ends(slow, fast)
    turns = turned(_speed(_theta(freqs)), positive(trained, "trained"))
    # If both ends are equal (Llama 4), there is no ramp
    kept = (turns - slow) / (fast - slow) if fast > slow else (turns > slow).to(freqs)
    return _blend(freqs, factor, kept.clamp(0, 1))


def llama3(freqs: Theta, factor: float, trained: int, low: float = 1.0, high: float = 4.0) -> Theta:
    """Return θ of Llama 3.1: slow pairs are interpolated, fast pairs are kept.

    Slow pairs make fewer than `low` full turns in `trained` tokens, fast pairs more than `high`.

    - `freqs`: θ in radians per token
    - `factor`: positive number, new length / trained length; Llama 3.1 has 8
    - `trained`: tokens of the longest text in training, `original_max_position_embeddings`
    - `low`: full turns, `low_freq_factor`, 1 by default
    - `high`: full turns, `high_freq_factor`, 4 by default

    Raises ValueError unless 0 < `low` ≤ `high`.

    >>> from posenc import frequencies
    >>> llama3(frequencies(4, 500_000.0), 8.0, trained=8192)[0]
    tensor(1., dtype=torch.float64)
    """
    return by_parts(freqs, factor, trained, slow=low, fast=high)


def yarn(
    freqs: Theta,
    factor: float,
    trained: int,
    fast: float = 32.0,
    slow: float = 1.0,
    rounded: bool = True,
) -> Theta:
    """Return the frequencies of YaRN, as its released code computes them.

    Pass `gain=yarn_gain(factor)` to `RoPE` as well.

    - `freqs`: θ in radians per token, a geometric sequence of pairs
    - `factor`: positive number, new length / trained length
    - `trained`: tokens of the longest text in training
    - `fast`: full turns at the start of the ramp, `beta_fast`, 32 by default
    - `slow`: full turns at the end of the ramp, `beta_slow`, 1 by default
    - `rounded`: True rounds the ends of the ramp to pairs; False is `truncate: false` of a config

    Raises ValueError for fewer than two pairs, and unless 0 < `slow` ≤ `fast`.

    >>> from posenc import RoPE, frequencies
    >>> RoPE(yarn(frequencies(128), 4.0, trained=4096), gain=yarn_gain(4.0)).dim
    128

    Peng et al. 2023, arXiv:2309.00071, §3, and the code released with it.
    """
    _ends(slow, fast)
    index, pairs = _ladder(_theta(freqs), "YaRN")
    turns = turned(_speed(freqs).flatten(), positive(trained, "trained")).detach()
    first_two = [float(turns[index.flatten() == j][0]) for j in (0, 1)]
    step = log(first_two[0] / first_two[1])
    # The fractional pair indices with `fast` and with `slow` turns
    first, last = (log(first_two[0] / ends) / step for ends in (fast, slow))
    if rounded:
        first, last = floor(first), ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    if first == last:
        last += 0.001
    return _blend(freqs, factor, 1 - ((index - first) / (last - first)).clamp(0, 1))


def yarn_gain(factor: float, mscale: float = 1.0, mscale_all_dim: float = 0.0) -> float:
    """Return the factor by which YaRN multiplies cos and sin.

    It is g(mscale) / g(mscale_all_dim).

    With s = `factor`, g(m) = 0.1 m ln s + 1 for s > 1, and 1 otherwise.

    - `factor`: s, new length / trained length
    - `mscale`: number of the config, 1 by default
    - `mscale_all_dim`: number of the config, 0 by default; DeepSeek sets it

    >>> round(yarn_gain(4.0), 6)
    1.138629
    """
    return _grown(factor, mscale) / _grown(factor, mscale_all_dim)


def yarn_logit_gain(factor: float, mscale_all_dim: float) -> float:
    """Return the factor by which DeepSeek's YaRN multiplies the softmax scale.

    The factor is g(mscale_all_dim)², with g as in `yarn_gain`.

    - `factor`: s, new length / trained length
    - `mscale_all_dim`: number of the config

    With mscale = mscale_all_dim the first factor, `yarn_gain`, is 1, and only the second sharpens
    the softmax, for rotated and other channels alike.

    >>> round(yarn_logit_gain(40.0, 1.0), 6)
    1.873854
    """
    return _grown(factor, mscale_all_dim) ** 2


def longrope(
    freqs: Theta, length: int, trained: int, short: Sequence[float], long: Sequence[float]
) -> Theta:
    """Return LongRoPE's θ: the frequency of each pair is divided by a factor found by search.

    - `freqs`: θ in radians per token
    - `length`: tokens of the text, which select the list
    - `trained`: tokens of the longest text in training
    - `short`: a factor for each pair, for texts up to `trained`
    - `long`: a factor for each pair, for longer texts

    A cache of keys rotated with the short list becomes invalid when the text grows past `trained`.
    Raises ValueError if a list does not have one factor per pair.

    >>> from posenc import frequencies
    >>> longrope(frequencies(4), 8192, trained=4096, short=[1.0, 1.0], long=[1.0, 4.0])
    tensor([1.0000, 0.0025], dtype=torch.float64)

    Ding et al. 2024, arXiv:2402.13753.
    """
    factors = short if positive(length, "length") <= positive(trained, "trained") else long
    name, pairs = "short" if factors is short else "long", _theta(freqs).shape[-1]
    if not isinstance(factors, Sequence) or isinstance(factors, str):
        raise TypeError(f"`{name}` must be a list of factors, one per pair, got {brief(factors)}.")
    if len(factors) != pairs:
        raise ValueError(f"`{name}` must have {pairs} factors, one per pair, got {len(factors)}.")
    by = [positive(factor, name) for factor in factors]
    return _finite(freqs / tensor(by, dtype=float64, device=freqs.device), min(by))


def longrope_gain(factor: float, trained: int) -> float:
    """Return the factor by which LongRoPE multiplies cos and sin.

    It is √(1 + ln s / ln L) for s > 1, otherwise 1.

    - `factor`: s, new length / trained length
    - `trained`: L, tokens of the longest text in training

    >>> round(longrope_gain(32.0, 4096), 6)
    1.190238
    """
    if positive(factor, "factor") <= 1:
        return 1.0
    if positive(trained, "trained") <= 1:
        raise ValueError(f"`trained` must be a length of more than 1 token, got {trained}.")
    return sqrt(1 + log(factor) / log(trained))


def riflex(freqs: Frequencies, length: float, repeats: float, share: float = 0.9) -> Frequencies:
    """Return θ of RIFLEx: one pair is slowed, so that a longer video does not repeat itself.

    This intrinsic pair makes less than one turn within `length` frames.

    - `freqs`: θ of the time axis in radians per frame, a vector (pair,)
    - `length`: frames of the longer video
    - `repeats`: first frame at which a video of the model repeats; the intrinsic pair is the one
      with the nearest period, rounded to whole frames
    - `share`: share of a full turn of this pair within `length`, 0.9 by default; eq. 8 has 1

    HunyuanVideo repeats at 48 latent frames, which selects pair 3 of θ with base 256 and period 50.

    >>> from posenc import frequencies
    >>> 2 * pi / riflex(frequencies(16, 256.0), 66, repeats=48)[2:5]  # periods, in frames
    tensor([ 25.1327,  73.3333, 100.5310], dtype=torch.float64)

    Zhao et al. 2025, arXiv:2502.15894, eq. 7 and 8; thu-ml/RIFLEx, riflex_utils.py at 18e0bc3.
    """
    if theta(freqs).ndim != 1:
        raise ValueError(
            f"`freqs` must be θ of one axis, a vector, got shape {tuple(freqs.shape)}. Pass θ of"
            " the time axis, and combine the axes afterwards."
        )
    intrinsic = ((2 * pi / freqs).round() - positive(repeats, "repeats")).abs().argmin()
    slower = positive(share, "share") * 2 * pi / positive(length, "length")
    return where(arange(len(freqs), device=freqs.device) == intrinsic, slower, freqs)


def turned(freqs: Theta, length: float) -> Tensor:
    """Return the number of full turns that each pair makes within a length.

    - `freqs`: θ in radians per token
    - `length`: tokens

    >>> from posenc import frequencies
    >>> turned(frequencies(4), 1000)
    tensor([159.1549,   1.5915], dtype=torch.float64)
    """
    return length * freqs / (2 * pi)


def _theta(freqs: Theta) -> Theta:
    if not isinstance(freqs, Tensor):
        raise TypeError(
            f"`freqs` must be a tensor of frequencies, got {brief(freqs)}. Pass"
            " `posenc.frequencies(dim)`."
        )
    return freqs if freqs.ndim == 3 else theta(freqs)


def _speed(freqs: Theta) -> Tensor:
    """Return the speed of each pair: |θⱼ| for one axis, or the norm of θⱼ over several axes."""
    return freqs if freqs.ndim == 1 else freqs.norm(dim=0)


def _ladder(freqs: Theta, who: str) -> tuple[Tensor, int]:
    """Return each pair's index in a geometric sequence of speeds, and the sequence's length."""
    speed, pairs = _speed(freqs).detach(), freqs.shape[-1]
    index = arange(pairs, dtype=freqs.dtype, device=freqs.device)
    if freqs.ndim > 1:
        turning = speed[speed > 0].double()
        fast = turning.amax() if turning.numel() else speed.new_ones(())
        slower = turning[turning < fast * (1 - ALIKE)]
        step = (fast / slower.amax()).log() if slower.numel() else speed.new_ones(())
        index = (fast / speed.double().where(speed > 0, fast)).log() / step
        if (index - index.round()).abs().max() > APART:
            raise ValueError(
                f"`freqs` must be a geometric sequence for {who}, such as θ of `axial`, `mrope` or"
                " an untrained `Mixed`. Use `interpolate` or `by_parts`, which accept any"
                " frequencies."
            )
        index = index.round().to(freqs)
        pairs = int(index.max()) + 1
    if pairs < 2:
        raise ValueError(f"`freqs` must have at least 2 pairs for {who}, got {pairs}.")
    return index, pairs


def _blend(freqs: Theta, factor: float, kept: Tensor) -> Theta:
    return (1 - kept) * interpolate(freqs, factor) + kept * freqs


def _grown(factor: float, mscale: float) -> float:
    mscale = number(mscale, "mscale")
    return 0.1 * mscale * log(factor) + 1 if positive(factor, "factor") > 1 else 1.0


def _ends(slow: float, fast: float) -> None:
    if not 0 < number(slow, "slow") <= number(fast, "fast"):
        raise ValueError(
            "`slow` and `fast` must be numbers of full turns within the trained length, with"
            f" 0 < `slow` ≤ `fast`, got {slow} and {fast}."
        )


def _finite(freqs: Theta, factor: float) -> Theta:
    if has_values(freqs) and not freqs.isfinite().all():
        raise ValueError(f"`factor` must keep θ finite, got {factor}. Use a factor nearer to 1.")
    return freqs
