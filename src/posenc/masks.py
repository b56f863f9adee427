"""Which keys a query sees. Masks are like biases, (b, h, i, j) -> bool, joined with `&` and `|`.

They compare positions or document ids. Without positions a text stands at 0, 1, 2, …, which says
nothing of where cached keys stand: then give `pos` of the queries and `k_pos` of the keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

import torch
from torch import Tensor

from posenc.distance import take
from posenc.positions import Side, checked, exact, filling
from posenc.shapes import Index, KeyPositions, Positions, Seen

Shapes = tuple[tuple[int, ...], tuple[int, ...]]  # of the positions of queries and of keys


@dataclass(frozen=True, eq=False)
class Band:
    """low ≤ position of the query − position of the key ≤ high; None stands for 0, 1, 2, …"""

    low: float
    high: float
    q_pos: Tensor | None = None
    k_pos: Tensor | None = None


@dataclass(frozen=True)
class Mask:
    """`sees(b, h, i, j)` is True where query i sees key j."""

    sees: Seen
    shapes: tuple[Shapes, ...] = ()  # of the positions that it was made of
    is_causal: bool = False  # exactly the triangle that kernels have built in
    bands: tuple[Band, ...] | None = field(default=None, compare=False)  # that say the same
    made_of: tuple[Tensor, ...] | None = field(default=None, compare=False)  # None: nobody knows

    def __call__(self, b: Index, h: Index, i: Index, j: Index) -> Tensor:
        return self.sees(b, h, i, j)

    def __and__(self, other: "Mask | Seen") -> "Mask":
        """Also with a function (b, h, i, j) -> bool of your own."""
        sees = lambda b, h, i, j: self.sees(b, h, i, j) & other(b, h, i, j)  # noqa: E731
        both = _joined(self, other)
        bands = other.bands if isinstance(other, Mask) else None
        return replace(both, sees=sees, bands=self.bands and bands and self.bands + bands)

    def __or__(self, other: "Mask | Seen") -> "Mask":
        sees = lambda b, h, i, j: self.sees(b, h, i, j) | other(b, h, i, j)  # noqa: E731
        return replace(_joined(self, other), sees=sees)

    def check(self, batch: int, queries: int, keys: int) -> None:
        """Raises ValueError if it was made for other tokens or another batch."""
        counts = {"queries": queries, "keys": keys}
        for shapes in self.shapes:
            if shapes == NOWHERE and queries != keys:
                raise ValueError(
                    f"this mask compares positions, and {queries} queries with {keys} keys do not"
                    " say theirs: pass them, as in `causal(q_pos, k_pos)`."
                )
            for shape, (what, tokens) in zip(shapes, counts.items(), strict=True):
                if shape and shape[-1] not in (ANY, tokens):
                    raise ValueError(f"the mask has {shape[-1]} positions for {tokens} {what}.")
                if shape[:-1] not in ((), (1,), (batch,)):
                    raise ValueError(f"the mask is for a batch of {shape[0]}, q and k for {batch}.")


ANY = -1  # of tokens: whatever their number
NOWHERE: Shapes = ((), ())  # made without positions


def causal(pos: Positions | None = None, k_pos: KeyPositions | None = None) -> Mask:
    """A token sees itself and what stands before it."""
    if pos is None:
        return CAUSAL
    q, k, shapes, made_of = _both(pos, k_pos)
    bands = (Band(0, inf, *made_of),)
    return Mask(lambda b, h, i, j: q(b, i) >= k(b, j), shapes, bands=bands, made_of=made_of)


def window(size: int, pos: Positions | None = None, k_pos: KeyPositions | None = None) -> Mask:
    """A token sees itself and the `size` − 1 nearest on either side; `& causal()` leaves one side.

    >>> from posenc.distance import pairs
    >>> seen = (window(2) & causal())(*pairs((1, 1, 3, 3)))
    >>> seen.int().squeeze().tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    if size < 1:
        raise ValueError(f"a token sees at least itself: `size` must be at least 1, got {size}.")
    if pos is None:
        sees = lambda b, h, i, j: (i - j).abs() < size  # noqa: E731
        return Mask(sees, (NOWHERE,), bands=(Band(1 - size, size - 1),), made_of=())
    q, k, shapes, made_of = _both(pos, k_pos)
    sees = lambda b, h, i, j: (q(b, i) - k(b, j)).abs() < size  # noqa: E731
    return Mask(sees, shapes, bands=(Band(1 - size, size - 1, *made_of),), made_of=made_of)


def documents(ids: Positions, k_ids: KeyPositions | None = None) -> Mask:
    """A token sees its own document only; `positions.documents` makes the ids of a packed row."""
    q, k, shapes, made_of = _both(ids, k_ids)
    return Mask(lambda b, h, i, j: q(b, i) == k(b, j), shapes, made_of=made_of)


def padding(lengths: Sequence[int], side: Side = "right", tokens: int | None = None) -> Mask:
    """Nobody sees the filling that `positions.padded`, with the same arguments, has put in."""
    gaps = [filling(n, lengths, tokens) for n in lengths]
    left = checked(side) == "left"
    first = torch.tensor(gaps if left else [0] * len(gaps))
    last = first + torch.tensor(lengths)
    keys = lengths[0] + gaps[0] if left and gaps else ANY

    def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        start, end = first.to(j.device)[b], last.to(j.device)[b]
        return (j >= start) & (j < end)

    return Mask(sees, (((), (len(gaps), keys)),), made_of=(first, last))


def _both(q: Tensor, k: Tensor | None):
    q, k = exact(q), exact(q if k is None else k)
    return take(q), take(k), ((tuple(q.shape), tuple(k.shape)),), (q, k)


def _joined(one: Mask, other: Mask | Seen) -> Mask:
    """What holds of two masks together, however they are joined."""
    made_of = other.made_of if isinstance(other, Mask) else None
    both = None if one.made_of is None or made_of is None else one.made_of + made_of
    return Mask(one.sees, one.shapes + getattr(other, "shapes", ()), made_of=both)


CAUSAL = Mask(
    lambda b, h, i, j: i >= j, (NOWHERE,), is_causal=True, bands=(Band(0, inf),), made_of=()
)
