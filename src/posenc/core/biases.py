"""How far a query stands after a key, and the biases that depend on nothing else."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from posenc.core.cache import kept
from posenc.core.shapes import Bias, KeyPositions, PairBias, Positions
from posenc.core.tracing import readable

FEW = 8  # queries, as in decoding


def take(values: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """(batch, token) indices -> the value there, of (token,) or (batch, token) values."""
    if values.ndim == 1 or len(values) == 1:
        flat = values.reshape(-1)
        return lambda b, n: flat[n]
    return lambda b, n: values[b, n]


def offset(q_pos: Positions, k_pos: KeyPositions) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """(batch, query, key) indices -> position of the query − position of the key."""
    q, k = take(q_pos), take(k_pos)
    return lambda b, i, j: q(b, i) - k(b, j)


def away(q_pos: Positions, k_pos: KeyPositions, rows: slice, keys: slice) -> Tensor:
    """Offsets of these queries and keys, (batch or 1, 1, query, key)."""
    apart = q_pos[..., rows].unsqueeze(-1) - k_pos[..., keys].unsqueeze(-2)
    return apart.unsqueeze(-3) if apart.ndim == 3 else apart.unsqueeze(0).unsqueeze(0)


# Biases that go by distance. Each may be called, as any bias; `block` makes that of some queries
# and keys at once, in a shape that broadcasts to (batch, head, query, key).


@dataclass(frozen=True)
class ByDistance:
    """The bias f(head, offset). Callable as any bias; attention may also use `f` directly.

    Over regular positions it is a Toeplitz matrix: a strided view of one vector for each head.
    `made_of` are the encoding and all tensors that f reads: what f makes may be kept until one of
    them is written to. None: it may not.
    """

    f: Callable[[Tensor, Tensor], Tensor]
    q_pos: Positions
    k_pos: KeyPositions
    made_of: tuple[Any, ...] | None = None

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.f(h, offset(self.q_pos, self.k_pos)(b, i, j))

    def block_of(self, heads: int, rows: slice, keys: slice) -> Tensor:
        def make() -> Tensor:
            h = torch.arange(heads, device=self.q_pos.device).view(1, -1, 1, 1)
            return self.f(h, away(self.q_pos, self.k_pos, rows, keys))

        few = readable(self.q_pos) and self.q_pos.shape[-1] <= FEW
        return self.kept((heads, keys.start, keys.stop), make) if few else make()

    def kept(self, what: tuple[Any, ...], make: Callable[[], Tensor]) -> Tensor:
        """What `make` makes of f, for all layers that share the positions."""
        if self.made_of is None:
            return make()
        return kept(self.k_pos, what, (self.q_pos, self.k_pos, *self.made_of), make)


@dataclass
class ByRow:
    """by_query[i, row(offset)] + k[j] · of_key[back(offset)], one row for all beyond `reach`.

    `by_query` is (batch, head, query, row). `values`, (row, channel), is what the encoding adds to
    the values of keys at the offsets of `row`.
    """

    q_pos: Positions
    k_pos: KeyPositions
    reach: int
    row: Callable[[Tensor], Tensor]
    by_query: Tensor
    back: Callable[[Tensor], Tensor] | None = None
    k: Tensor | None = None
    of_key: Tensor | None = None
    values: Tensor | None = None
    of: Any = None  # the encoding, by which what is kept is told apart
    by_key: Tensor | None = field(init=False, default=None)  # k · of_key, as `products` makes it

    def __post_init__(self) -> None:
        if torch.is_grad_enabled() or not readable(self.by_query):
            self.products()  # now, not in a block that is made again for gradients

    def products(self) -> Tensor | None:
        """k · of_key of every row, (batch, head, key, row): made once, if it is asked for."""
        if self.by_key is None and self.k is not None and self.of_key is not None:
            self.by_key = self.k @ self.of_key.mT
        return self.by_key

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        apart = offset(self.q_pos, self.k_pos)(b, i, j)
        bias = self.by_query[b, h, i, self.row(apart)]
        by_key = self.products()
        if by_key is None or self.back is None:
            return bias
        return bias + by_key[b, h, j, self.back(apart)]

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        """One list of rows serves all heads: far faster than an index for each axis."""
        apart = away(self.q_pos, self.k_pos, rows, keys)
        bias = _looked_up(self.by_query[..., rows, :], self.row(apart))
        if self.back is None or self.k is None or self.of_key is None:
            return bias
        few = readable(apart) and len(apart) == 1 and apart.shape[-2] <= FEW
        if not few or torch.is_grad_enabled():
            by_key = self.products()
            assert by_key is not None
            return bias + _looked_up(by_key[..., keys, :], self.back(apart).mT).mT
        # Of few queries each key meets few rows: their products, instead of those of all rows.
        k, back = self.k[..., keys, :], self.back(apart[0, 0])
        k = k.to(torch.promote_types(k.dtype, torch.float32))
        each = [torch.linalg.vecdot(k, _rows(self.of_key, some).to(k.dtype)) for some in back]
        return bias + torch.stack(each, -2)

    def end(self, offset: int, rows: slice, keys: slice) -> tuple[Tensor, Tensor | None]:
        """(batch, head, query) and (batch, head, key): the two terms, of keys so far off."""
        at = torch.tensor(offset)
        of_query = self.by_query[..., rows, int(self.row(at))]
        if self.back is None or self.k is None or self.of_key is None:
            return of_query, None
        row = self.of_key[..., int(self.back(at)), :].unsqueeze(-1)
        return of_query, (self.k[..., keys, :] @ row).squeeze(-1)


def _looked_up(table: Tensor, row: Tensor) -> Tensor:
    """table[..., n, row[..., n, m]], (batch, head, n, m)."""
    return table.gather(-1, row.expand(*table.shape[:2], *row.shape[2:]))


def _rows(table: Tensor, row: Tensor) -> Tensor:
    """table[..., row, :]; a view, where they lie one after another."""
    first = int(row[0]) if len(row) else 0
    if torch.equal(row, torch.arange(first, first + len(row))):
        return table[..., first : first + len(row), :]
    return table.index_select(-2, row)


@dataclass(frozen=True)
class ByVector:
    """The bias x[i] · vectors(offset)[h], x being (batch, head, query, channel).

    `vectors` makes (head, offset, channel) of some offsets. `pairs` makes the bias of some queries
    and keys by another formula, which is faster for few queries.
    """

    q_pos: Positions
    k_pos: KeyPositions
    x: Tensor
    vectors: Callable[[Tensor], Tensor]
    pairs: Callable[[slice, slice], Tensor]

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        return self.pairs(rows, keys)


@dataclass(frozen=True)
class Added:
    """The sum of biases of different kinds."""

    biases: tuple[Bias, ...]

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        first, *others = (bias(b, h, i, j) for bias in self.biases if callable(bias))
        return sum(others, first)


def block(
    bias: Any,
    shape: tuple[int, int, int, int],
    rows: slice = slice(None),
    keys: slice = slice(None),
    device: torch.device | None = None,
    seen: Tensor | None = None,
) -> Tensor:
    """The bias of some queries and keys; it broadcasts to (batch, head, query, key).

    `seen` says which of the keys each of the queries sees; None: all of them.
    """
    if isinstance(bias, Added):
        first, *others = (block(part, shape, rows, keys, device, seen) for part in bias.biases)
        return sum(others, first)
    if isinstance(bias, ByDistance):
        return bias.block_of(shape[1], rows, keys)
    if hasattr(bias, "block"):
        return bias.block(rows, keys, seen)
    return bias(*pairs(shape, rows, device, keys))


def pairwise(bias: Any) -> bool:
    """Whether the bias may be called for one pair, as kernels want it."""
    if isinstance(bias, Added):
        return all(pairwise(part) for part in bias.biases)
    return callable(bias)


def tabulate(bias: Any) -> None:
    """Makes the tables that a bias reads when it is called, for one whose calls are traced."""
    if isinstance(bias, ByRow):
        bias.products()
    elif isinstance(bias, Added):
        for part in bias.biases:
            tabulate(part)


def pairs(
    shape: tuple[int, int, int, int],
    rows: slice = slice(None),
    device: torch.device | None = None,
    keys: slice = slice(None),
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Indices of every pair of (batch, head, query, key), or of some rows and keys, to broadcast.

    >>> [tuple(index.shape) for index in pairs((2, 4, 3, 5))]
    [(2, 1, 1, 1), (1, 4, 1, 1), (1, 1, 3, 1), (1, 1, 1, 5)]
    """
    b, h, i, j = (torch.arange(n, device=device) for n in shape)
    b, h, i = b.view(-1, 1, 1, 1), h.view(1, -1, 1, 1), i[rows].view(1, 1, -1, 1)
    return b, h, i, j[keys].view(1, 1, 1, -1)


def dense(
    bias: PairBias, shape: tuple[int, int, int, int], device: torch.device | None = None
) -> Tensor:
    """The bias of every pair at once, of a shape that broadcasts to (batch, head, query, key)."""
    return bias(*pairs(shape, device=device))
