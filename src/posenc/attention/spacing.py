"""Diagonal bands of visible query-key pairs, as in causal masks and windows.

Fast paths need both. At equally spaced positions an offset is step · (i − j) + shift, so functions
of distance depend on the difference of indices, and the keys that a query sees under a causal mask
or in a window are an interval of these differences.
"""

from math import isinf
from typing import NamedTuple

from posenc.core.masks import Mask
from posenc.core.positions import common_step
from posenc.core.shapes import Seen


class DiagonalBand(NamedTuple):
    """A diagonal band of visible pairs: query i sees key j if low ≤ i − j ≤ high."""

    queries: int
    keys: int
    low: int
    high: int

    @property
    def width(self) -> int:
        return self.high - self.low + 1

    @property
    def rows(self) -> range:
        """The indices of queries that see at least one key."""
        if self.low > self.high:
            return range(0)
        return range(max(0, self.low), min(self.queries, self.keys + self.high))

    @property
    def is_causal(self) -> bool:
        """True if the band is the causal triangle, which kernels support without a mask."""
        return self.low == 0 and self.high >= self.queries - 1 and self.queries == self.keys

    @property
    def sees_all_keys(self) -> bool:
        """True if every key is seen by at least one query."""
        end = min(self.queries, self.keys + self.high)
        return max(0, self.low) <= self.high and end - self.low >= self.keys

    def seen(self, rows: slice) -> slice:
        """Return the slice of the keys that are visible to at least one query in `rows`."""
        start = max(0, rows.start - self.high)
        return slice(start, max(start, min(self.keys, rows.stop - self.low)))

    def within(self, low: int, high: int) -> "DiagonalBand":
        return DiagonalBand(self.queries, self.keys, max(self.low, low), min(self.high, high))


def diagonal_band(mask: Mask | Seen | None, queries: int, keys: int) -> DiagonalBand | None:
    """Return the visible pairs of a mask as a diagonal band; None if they do not form a band."""
    if mask is None:
        return DiagonalBand(queries, keys, 1 - keys, queries - 1)
    if not isinstance(mask, Mask) or mask.bands is None or mask.ids:
        return None
    low, high = 1 - keys, queries - 1
    for band in mask.bands:
        step, shift = 1, 0
        if band.q_pos is not None and band.k_pos is not None:
            if band.hides_nothing:
                continue
            placed = common_step(band.q_pos, band.k_pos)
            if placed is None:
                return None
            step, shift = placed
        # Integer arithmetic is exact for large positions
        low = low if isinf(band.low) else max(low, -int((shift - band.low) // step))
        high = high if isinf(band.high) else min(high, int((band.high - shift) // step))
    return DiagonalBand(queries, keys, low, high)
