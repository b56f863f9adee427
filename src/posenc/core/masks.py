"""Masks of attention: functions (b, h, i, j) -> bool, combined with `&` and `|`.

A mask compares positions or document ids and stores copies of them, so a mask never changes.
Without positions it assumes 0, 1, 2, … for queries and for keys. Cached keys come before the
queries, so pass `pos` of the queries and `k_pos` of the keys then.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from inspect import signature
from math import inf
from operator import and_, or_
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from posenc.compat.tracing import is_eager_cpu, traced
from posenc.core.biases import ALL, pairs, take
from posenc.core.frequencies import not_positions
from posenc.core.positions import INTEGERS, Side, checked, counts, exact_copy, filling, sequence
from posenc.core.shapes import Index, KeyPositions, Positions, Seen
from posenc.support.arguments import brief, whole_number

__all__ = ["Mask", "causal", "documents", "padding", "window"]

Shapes = tuple[tuple[int, ...], tuple[int, ...]]  # shapes of the positions of queries and of keys


@dataclass(frozen=True, eq=False)
class OffsetRange:
    """Condition low ≤ query position − key position ≤ high for query-key pairs.

    None means positions 0, 1, 2, …
    """

    low: float
    high: float
    q_pos: Tensor | None = None
    k_pos: Tensor | None = None

    @cached_property
    def hides_nothing(self) -> bool:
        """True if the lowest and highest positions prove that all query-key pairs are visible.

        The result is cached, because the positions are copies that never change.
        """
        if self.q_pos is None or self.k_pos is None or not is_eager_cpu(self.q_pos, self.k_pos):
            return False
        if not self.q_pos.numel() or not self.k_pos.numel():
            return True
        (first, last), (k_first, k_last) = self.q_pos.aminmax(), self.k_pos.aminmax()
        low, high = first.item() - k_last.item(), last.item() - k_first.item()
        return self.low <= low and high <= self.high

    def sliced(self, rows: slice, keys: slice, texts: slice = ALL) -> "OffsetRange":
        """Return the range of offsets for slices of the queries, the keys and the batch."""
        q, k = self.q_pos, self.k_pos
        if q is None or k is None:
            q, k = (sequence(some.stop - some.start, some.start) for some in (rows, keys))
        else:
            q, k = _slice_positions(q, texts, rows), _slice_positions(k, texts, keys)
        return OffsetRange(self.low, self.high, q, k)


@dataclass(frozen=True)
class Mask:
    """Mask of attention: `mask(b, h, i, j)` is True where query i sees key j.

    `&` and `|` combine two masks. `causal`, `window`, `documents` and `padding` return one. A
    function of your own can be passed directly, or combined: `causal() & function`.

    - `sees`: function (b, h, i, j) -> bool tensor, for indices that broadcast
    - `shapes`: shapes of the positions of queries and keys in the mask
    - `is_causal`: True for exactly the triangle that kernels have built in
    - `bands`: ranges of offsets that are seen within a document; None: not known
    - `made_of`: tensors that the mask compares; None: not known
    - `ids`: document ids, which allow a separate call of attention for each document

    >>> mask = causal() & window(2)
    >>> b, h, i, j = (torch.tensor(n) for n in (0, 0, 3, 1))
    >>> bool(mask(b, h, i, j))
    False
    """

    sees: Seen
    shapes: tuple[Shapes, ...] = ()
    is_causal: bool = False
    bands: tuple[OffsetRange, ...] | None = field(default=None, compare=False)
    made_of: tuple[Tensor, ...] | None = field(default=None, compare=False)
    ids: tuple["_SameId", ...] = field(default=(), compare=False)
    # Block masks of FlexAttention by shape and device, cached as long as the mask exists
    blocks: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "blocks": {}}

    def __call__(self, b: Index, h: Index, i: Index, j: Index) -> Tensor:
        return self.sees(b, h, i, j)

    def __and__(self, other: "Mask | Seen") -> "Mask":
        """Return the mask of keys visible in both masks; `other` may be a plain function."""
        joined = _joined(self, other, and_)
        if not isinstance(other, Mask):
            return replace(joined, ids=self.ids)
        bands = None
        if self.bands is not None and other.bands is not None:
            bands = self.bands + other.bands
        return replace(joined, bands=bands, ids=self.ids + other.ids)

    def __or__(self, other: "Mask | Seen") -> "Mask":
        """Return the mask of keys visible in either mask; `other` may be a plain function."""
        return _joined(self, other, or_)

    __rand__, __ror__ = __and__, __or__

    def check(self, batch: int, queries: int, keys: int, heads: int | None = None) -> None:
        """Raise ValueError unless the mask fits the batch size, the tokens and the heads of a call.

        - `batch`: texts
        - `queries`, `keys`: tokens of each text
        - `heads`: heads of the queries; None: any
        """
        counts = {"queries": queries, "keys": keys}
        for shapes in self.shapes:
            if shapes == ((queries,), (keys,)) or (shapes == NOWHERE and queries == keys):
                continue
            if shapes == NOWHERE:
                raise ValueError(
                    f"the mask must be made with positions, because there are {queries} queries"
                    f" but {keys} keys. Pass the positions of queries and keys, as in"
                    " `causal(q_pos, k_pos)`."
                )
            for shape, (what, tokens) in zip(shapes, counts.items(), strict=True):
                if shape and shape[-1] not in (ANY, tokens):
                    raise ValueError(
                        f"the mask must have positions for {tokens} {what}, got {shape[-1]}. With a"
                        " `Cache`, make the mask for all tokens so far."
                    )
                if len(shape) == 3 and heads is not None and shape[1] not in (1, heads):
                    raise ValueError(
                        f"the mask must have positions for 1 head or for the {heads} heads of q,"
                        f" got positions for {shape[1]}. If query heads share keys, repeat the"
                        " positions of the key heads with `repeat_interleave`."
                    )
                # One row of positions is shared by all texts; a single length of `padding` is not
                one_for_all = () if shapes[0] == () else (1,)
                if shape[:-1][:1] not in ((), one_for_all, (batch,)):
                    raise ValueError(
                        f"the mask must be for a batch of {batch}, like q and k, got {shape[0]}."
                        f" Make a mask for a batch of {batch}."
                    )

    def of_last(self, start: int, tokens: int, batch: int) -> "Mask":
        """Return the mask for the queries from `start` on, such as the new tokens after a cache.

        - `start`: index of the first query to keep
        - `tokens`: queries and keys of the whole mask
        - `batch`: texts
        """
        self.check(batch, tokens, tokens)
        later, keys = slice(start, tokens), slice(0, tokens)
        shapes = [
            ((tokens - start,), (tokens,))
            if both == NOWHERE
            else (_shape_after(both[0], start), both[1])
            for both in self.shapes
        ]
        ids = tuple([same.sliced(later, keys) for same in self.ids])
        return replace(self.within(later, keys), shapes=tuple(shapes), ids=ids)

    def within(self, rows: slice, keys: slice, texts: slice = ALL) -> "Mask":
        """Return the mask for slices of queries and keys, in which indices start at 0.

        - `rows`, `keys`: slices of queries and keys
        - `texts`: slice of the batch; all by default
        """
        sees = _SlicedMask(self.sees, texts.start or 0, rows.start, keys.start)
        bands = self.bands and tuple([band.sliced(rows, keys, texts) for band in self.bands])
        return Mask(sees, bands=bands, made_of=self.made_of)


ANY = -1  # tokens: any number of them
NOWHERE: Shapes = ((), ())  # shapes of a mask made without positions


def causal(pos: Positions | None = None, k_pos: KeyPositions | None = None) -> Mask:
    """Return the mask where a token sees itself and all tokens before it.

    - `pos`: positions of the queries, (token,), (batch, token) or (batch, head, token); None: 0, 1,
      2, …
    - `k_pos`: positions of the keys; None: those of the queries

    Raises TypeError for `k_pos` without `pos`.

    >>> from posenc.core.biases import pairs
    >>> causal()(*pairs((1, 1, 2, 2))).int().squeeze().tolist()
    [[1, 0], [1, 1]]
    """
    return CAUSAL if pos is None is k_pos else _banded(_NotBefore, 0, inf, pos, k_pos)


def window(size: int, pos: Positions | None = None, k_pos: KeyPositions | None = None) -> Mask:
    """Return the mask where a token sees positions less than `size` away, on both sides.

    - `size`: tokens on one side, itself included; `window(size) & causal()` hides the later ones
    - `pos`: positions of the queries, (token,), (batch, token) or (batch, head, token); None: 0, 1,
      2, …
    - `k_pos`: positions of the keys; None: those of the queries

    Raises ValueError for a `size` below 1, and TypeError for `k_pos` without `pos`.

    >>> from posenc.core.biases import pairs
    >>> seen = (window(2) & causal())(*pairs((1, 1, 3, 3)))
    >>> seen.int().squeeze().tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    if whole_number(size, "size") < 1:
        raise ValueError(
            f"`size` must be at least 1, because each token attends at least to itself, got {size}."
        )
    return _banded(partial(_WithinSize, size), 1 - size, size - 1, pos, k_pos)


def documents(ids: Positions, k_ids: KeyPositions | None = None) -> Mask:
    """Return the mask where a token sees only tokens of its own document.

    - `ids`: document of each query, whole numbers, (token,) or (batch, token);
      `positions.documents` returns the ids of a packed row
    - `k_ids`: document of each key; None: those of the queries

    Raises TypeError unless the ids are whole numbers.

    >>> from posenc.core.biases import pairs
    >>> documents(torch.tensor([0, 0, 1]))(*pairs((1, 1, 3, 3))).int().squeeze().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    q = _ids(ids, "ids")
    k = q if k_ids is None else _ids(k_ids, "k_ids")
    same = _SameId(q, k)
    shapes = ((tuple(q.shape), tuple(k.shape)),)
    return Mask(same, shapes, bands=(), made_of=(q, k), ids=(same,))


def padding(lengths: Sequence[int], side: Side = "right", tokens: int | None = None) -> Mask:
    """Return the mask where no token sees the padding tokens of a batch of texts.

    - `lengths`: tokens of each text, one text per row of the batch
    - `side`: side of the padding, "right" (the default) or "left"
    - `tokens`: tokens of each row; None: as many as the longest text

    >>> from posenc.core.biases import pairs
    >>> padding([2, 1])(*pairs((2, 1, 2, 2))).int().squeeze().tolist()
    [[1, 1], [1, 0]]
    """
    lengths = counts(lengths)
    gaps = [filling(n, lengths, tokens) for n in lengths]
    left = checked(side) == "left"
    first = torch.tensor(gaps if left else [0] * len(gaps))
    last = first + torch.tensor(lengths)
    keys = lengths[0] + gaps[0] if left and gaps else ANY
    return Mask(_IndexBetween(first, last), (((), (len(gaps), keys)),), made_of=(first, last))


# Masks are objects of these classes rather than closures, so that they can be pickled


@dataclass(frozen=True, eq=False)
class _NotBefore:
    q_pos: Tensor | None = None
    k_pos: Tensor | None = None

    def __call__(self, b: Index, h: Index, i: Index, j: Index) -> Tensor:
        return _at(self.q_pos, b, h, i) >= _at(self.k_pos, b, h, j)


@dataclass(frozen=True, eq=False)
class _WithinSize:
    size: int
    q_pos: Tensor | None = None
    k_pos: Tensor | None = None

    def __call__(self, b: Index, h: Index, i: Index, j: Index) -> Tensor:
        return (_at(self.q_pos, b, h, i) - _at(self.k_pos, b, h, j)).abs() < self.size


def _at(pos: Tensor | None, b: Index, h: Index, n: Index) -> Tensor:
    return n if pos is None else take(pos)(b, h, n)


@dataclass(frozen=True, eq=False)
class _SameId:
    q_ids: Tensor
    k_ids: Tensor

    def __call__(self, b: Index, h: Index, i: Index, j: Index) -> Tensor:
        return take(self.q_ids)(b, h, i) == take(self.k_ids)(b, h, j)

    def sliced(self, rows: slice, keys: slice) -> "_SameId":
        return _SameId(self.q_ids[..., rows], self.k_ids[..., keys])


@dataclass(frozen=True, eq=False)
class _SlicedMask:
    """A mask function for slices of the batch, the queries and the keys.

    The starts of the slices are added to the indices.
    """

    sees: Seen
    text: int
    query: int
    key: int

    def __call__(self, b: Index, h: Index, i: Index, j: Index) -> Tensor:
        return self.sees(b + self.text, h, i + self.query, j + self.key)


def _slice_positions(pos: Tensor, texts: slice, tokens: slice) -> Tensor:
    """Return the positions of a slice of the batch and a slice of the tokens.

    Positions that all texts share are sliced by tokens only.
    """
    pos = pos[..., tokens]
    return pos if pos.ndim == 1 or len(pos) == 1 else pos[texts]


def _shape_after(shape: tuple[int, ...], start: int) -> tuple[int, ...]:
    """Return the shape that positions have after their first `start` tokens are removed."""
    return (*shape[:-1], shape[-1] - start) if shape and shape[-1] != ANY else shape


@dataclass(frozen=True, eq=False)
class _IndexBetween:
    """A mask function: key j is visible if first ≤ j < last, with limits for each text."""

    first: Tensor
    last: Tensor

    def __call__(self, b: Index, h: Index, i: Index, j: Index) -> Tensor:
        first, last = self.first.to(j.device)[b], self.last.to(j.device)[b]
        return (j >= first) & (j < last)


@dataclass(frozen=True, eq=False)
class _Joined:
    left: Seen
    right: Seen
    operator: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, b: Index, h: Index, i: Index, j: Index) -> Tensor:
        return self.operator(self.left(b, h, i, j), self.right(b, h, i, j))


def _banded(
    see: Callable[..., Seen], low: float, high: float, pos: Tensor | None, k_pos: Tensor | None
) -> Mask:
    if pos is None:
        if k_pos is not None:
            raise TypeError(
                "`pos` must be the positions of queries if `k_pos` is given, got None. Pass both"
                " `pos` and `k_pos`."
            )
        return Mask(see(), (NOWHERE,), bands=(OffsetRange(low, high),), made_of=())
    q = exact_copy(pos)
    k = q if k_pos is None else exact_copy(k_pos, "k_pos")
    if max(q.ndim, k.ndim) > 3:
        raise ValueError(not_positions((q if q.ndim > 3 else k).shape))
    bands = (OffsetRange(low, high, q, k),)
    return Mask(see(q, k), ((tuple(q.shape), tuple(k.shape)),), bands=bands, made_of=(q, k))


def _ids(ids: Tensor, name: str) -> Tensor:
    """Check that document ids are whole numbers, and copy them."""
    if not isinstance(ids, Tensor) or not ids.ndim or ids.dtype not in INTEGERS:
        dtype = f" of {ids.dtype}" if isinstance(ids, Tensor) else ""
        raise TypeError(
            f"`{name}` must be a tensor of whole numbers, the index of each token's document, got"
            f" {brief(ids)}{dtype}. Use `positions.documents(lengths)`."
        )
    return ids.to(torch.int64, copy=True)


def refuse_no_function(mask: Any, name: str = "`mask`", device: torch.device | None = None) -> None:
    """Raise TypeError or ValueError unless `mask` is a `Mask` or a function of four indices.

    With a `device`, a function that is not a `Mask` is called once, for the first pair.
    """
    if isinstance(mask, Mask):
        return
    if isinstance(mask, Tensor):
        raise TypeError(
            f"{name} must be a function of indices, as in `posenc.masks`, got a tensor. Pass"
            " `lambda b, h, i, j: tensor[b, h, i, j]`."
        )
    if not callable(mask) or isinstance(mask, type):
        raise TypeError(
            f"{name} must be a function of indices, as in `posenc.masks`, got {brief(mask)}."
        )
    if isinstance(mask, FunctionType) and mask.__module__ == Mask.__module__:
        raise TypeError(
            f"{name} must be the result of a call of `masks.{mask.__name__}`, got the function"
            f" itself. Pass `masks.{mask.__name__}(…)`."
        )
    if not isinstance(mask, FunctionType) or traced():
        return
    try:
        signature(mask).bind(*"bhij")
    except TypeError:
        raise TypeError(
            f"{name} must be a function of four indices, batch, head, query and key, got one with"
            f" the arguments {signature(mask)}. Pass `lambda b, h, i, j: i >= j`, for instance."
        ) from None
    if device is not None:
        _check_result(mask(*pairs((1, 1, 1, 1), device=device)), name)


def _check_result(seen: Any, name: str) -> None:
    """Check that a mask function returned a tensor with one bool for one query-key pair."""
    if not isinstance(seen, Tensor) or seen.dtype is not torch.bool:
        got = seen.dtype if isinstance(seen, Tensor) else brief(seen)
        raise TypeError(
            f"{name} must return a bool tensor, True where query i sees key j, got {got}. Compare"
            " indices, as in `lambda b, h, i, j: i >= j`."
        )
    if seen.numel() != 1:
        raise ValueError(
            f"{name} must return one value for each pair of indices, got {brief(seen)} for one"
            " pair. Pass `lambda b, h, i, j: tensor[b, h, i, j]`."
        )


def _joined(mask: Mask, other: Mask | Seen, operator: Callable[[Tensor, Tensor], Tensor]) -> Mask:
    """Combine two mask functions by `&` or `|`.

    The result has no known ranges of offsets.
    """
    refuse_no_function(other, "the other mask")
    made_of = other.made_of if isinstance(other, Mask) else None
    tensors = None if mask.made_of is None or made_of is None else mask.made_of + made_of
    sees = _Joined(mask.sees, other.sees if isinstance(other, Mask) else other, operator)
    return Mask(sees, mask.shapes + getattr(other, "shapes", ()), made_of=tensors)


CAUSAL = replace(_banded(_NotBefore, 0, inf, None, None), is_causal=True)
