"""Find the smallest RoPE base whose similarity Σⱼ cos(m θⱼ) is never negative up to a length.

    B(m) = Σⱼ cos(m θⱼ)               similarity at distance m of a key equal to the query

`analysis.frequencies` explains the meaning, and calls this search for sizes outside of its table.
"""

from collections.abc import Sequence
from math import isqrt, log10

from torch import Tensor, arange, cat, float64, linspace, logspace, tensor

from posenc.core.frequencies import frequencies
from posenc.core.shapes import Frequencies

ROUGH_ERROR = 2e-4  # bound of the float32 error per pair, in a sum over up to 2,048 pairs


def similarity(freqs: Frequencies, length: int) -> Tensor:
    """Return the RoPE similarity B(m) = Σⱼ cos(m θⱼ) at distances m = 0 … length − 1, in float64.

    With m = a·n + b, cos((a·n + b)θ) = cos(a·n·θ) cos(bθ) − sin(a·n·θ) sin(bθ): a matrix product.
    """
    n = isqrt(length - 1) + 1
    theta = freqs.double()
    # coarse: angles of the multiples of n, fine: of 0 … n − 1, both (n, pair); summing over pairs,
    # the products are (a, b), which flattened is m = a n + b
    coarse, fine = (step * arange(n, dtype=float64)[:, None] * theta for step in (n, 1))
    product = coarse.cos() @ fine.cos().mT - coarse.sin() @ fine.sin().mT
    return product.flatten()[:length]


def search(dim: int, length: int, bases: Sequence[float], first: int = 0) -> int | None:
    """Return the index of the first of `bases` with Σⱼ cos(m θⱼ) ≥ 0 at all m < `length`, or None.

    `bases` are candidates for RoPE's base. B(m) = Σⱼ cos(m θⱼ) is the similarity at distance m.

    The search starts at index `first`.
    """
    distances = logspace(0, log10(max(length - 1, 1)), 256, dtype=float64).round().unique()
    far = linspace(0.8 * length, length - 1, 256, dtype=float64).round().unique()
    negative: int | None = None  # distance at which the last one failed
    for start in range(first, len(bases), 64):
        some = tensor(bases[start : start + 64], dtype=float64)
        places = arange(start, start + len(some))
        # One negative distance is enough to fail, so most bases fail at the first few distances
        for tried in (distances[:: max(len(distances) // 16, 1)], distances, far):
            theta = some[:, None] ** (-arange(0, dim, 2, dtype=float64) / dim)
            enough = ((tried[:, None] * theta[:, None]).cos().sum(-1) >= 0).all(-1)
            places, some = places[enough], some[enough]
        for place in places.tolist():
            negative = _negative_distance(frequencies(dim, bases[place]), length, negative)
            if negative is None:
                return place
    return None


def first_negative(theta: Sequence[float], limit: int) -> int:
    """Return the first distance at which B(m) = Σⱼ cos(m θⱼ) is negative, or `limit` if none is."""
    freqs, start, rows = tensor(theta, dtype=float64), 0, 4096
    while start < limit:
        end = min(start + rows, limit)
        found = _first_negative(freqs, start, end)
        if found is not None:
            return found
        start, rows = end, 4 * rows
    return limit


def _negative_distance(freqs: Frequencies, length: int, near: int | None) -> int | None:
    """Return some distance m < `length` at which Σⱼ cos(m θⱼ) is negative, or None."""
    # A base mostly fails near the distance where a slightly smaller base failed
    if near is not None:
        reach = max(64, near // 100)
        m = _first_negative(freqs, max(near - reach, 0), min(near + reach, length))
        if m is not None:
            return m
    # Start at large distances, where B is smallest
    end, rows = length, 1024
    while end > 0:
        start = max(end - rows, 0)
        m = _first_negative(freqs, start, end)
        if m is not None:
            return m
        end, rows = start, 4 * rows
    return None


def _first_negative(freqs: Frequencies, start: int, end: int) -> int | None:
    """Return the first distance m in start … end − 1 at which Σⱼ cos(m θⱼ) is negative, or None.

    Sums near 0 in float32 are computed again in float64.
    """
    rough, doubt = _rough_similarity(freqs, start, end), ROUGH_ERROR * len(freqs)
    if float(rough.min()) > doubt:
        return None
    low = (rough <= doubt).nonzero().flatten()
    sure = (rough[low] < -doubt).nonzero().flatten()
    low = low[: int(sure[0]) + 1] if len(sure) else low
    below = (((low[:, None] + start) * freqs).cos().sum(-1) < 0).nonzero().flatten()
    return int(low[below[0]]) + start if len(below) else None


def _rough_similarity(freqs: Frequencies, start: int, end: int) -> Tensor:
    """Return Σⱼ cos(m θⱼ) at distances m = start … end − 1, from a matrix product in float32."""
    n = isqrt(end - start - 1) + 1
    coarse = (start + n * arange(n, dtype=float64))[:, None] * freqs
    fine = arange(n, dtype=float64)[:, None] * freqs
    left, right = cat((coarse.cos(), -coarse.sin()), -1), cat((fine.cos(), fine.sin()), -1)
    return (left.float() @ right.float().mT).flatten()[: end - start]
