"""Positions at equal steps, and the strip of pairs that a mask leaves of them: the fast paths' own.

Over such positions an offset is step · (i − j) + shift, so whatever goes by distance goes by the
difference of indices, and what a query sees of a causal text or a window is an interval of it.
"""

from dataclasses import dataclass
from math import ceil, floor, inf, isinf

from torch import Tensor

from posenc.masks import Mask
from posenc.positions import visible
from posenc.shapes import Seen


@dataclass(frozen=True)
class Line:
    """Positions start, start + step, start + 2 · step, …"""

    start: int
    step: int


@dataclass(frozen=True)
class Strip:
    """Pairs of query i and key j with low ≤ i − j ≤ high, of so many queries and keys."""

    queries: int
    keys: int
    low: int
    high: int

    @property
    def width(self) -> int:
        return self.high - self.low + 1

    @property
    def rows(self) -> range:
        """The queries that see a key."""
        return range(max(0, self.low), min(self.queries, self.keys + self.high))

    def seen(self, rows: slice) -> slice:
        """The keys that some of these rows see; each of them is seen by one of the rows."""
        start = max(0, rows.start - self.high)
        return slice(start, max(start, min(self.keys, rows.stop - self.low)))

    def within(self, low: int, high: int) -> "Strip":
        return Strip(self.queries, self.keys, max(self.low, low), min(self.high, high))


def readable(*tensors: Tensor) -> bool:
    """Whether looking at their values costs nothing: no device to wait for, nothing traced."""
    return visible(*tensors) and all(x.is_cpu for x in tensors)


def line(pos: Tensor, step: int = 0) -> Line | None:
    """Whole positions at equal steps forwards, alike in the whole batch; else None.

    A single position may be said to have any `step`.
    """
    if not readable(pos) or pos.is_floating_point() or not pos.numel():
        return None
    first = pos[0] if pos.ndim == 2 else pos
    if pos.ndim == 2 and not (pos == first).all():
        return None
    if len(first) == 1:
        return Line(int(first), step)
    step = int(first[1] - first[0])
    regular = step > 0 and bool((first.diff() == step).all())
    return Line(int(first[0]), step) if regular else None


def lines(q_pos: Tensor, k_pos: Tensor) -> tuple[int, int] | None:
    """(step, shift), if every offset is step · (i − j) + shift; else None."""
    k = line(k_pos, step=1)
    q = k if q_pos is k_pos else line(q_pos, step=k.step if k else 1)
    if q and k and k_pos.shape[-1] == 1:
        k = Line(k.start, q.step)
    return (k.step, q.start - k.start) if q and k and q.step == k.step else None


def strip(mask: Mask | Seen | None, queries: int, keys: int) -> Strip | None:
    """The pairs that this mask shows, if they are a strip; else None."""
    whole = Strip(queries, keys, 1 - keys, queries - 1)
    if mask is None:
        return whole
    if not isinstance(mask, Mask) or mask.bands is None:
        return None
    for band in mask.bands:
        placed = (1, 0)
        if band.q_pos is not None and band.k_pos is not None:
            placed = lines(band.q_pos, band.k_pos)
        if placed is None:
            return None
        step, shift = placed
        low, high = (band.low - shift) / step, (band.high - shift) / step
        whole = whole.within(
            whole.low if low == -inf else ceil(low), whole.high if isinf(high) else floor(high)
        )
    return whole
