"""How far a query stands after a key, and the biases that depend on nothing else."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.shapes import Bias, KeyPositions, Positions


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


@dataclass(frozen=True)
class ByDistance:
    """The bias f(head, offset). Callable as any bias; attention may also use `f` directly.

    Over regular positions it is a Toeplitz matrix: a strided view of one vector for each head.
    """

    f: Callable[[Tensor, Tensor], Tensor]
    q_pos: Positions
    k_pos: KeyPositions

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.f(h, offset(self.q_pos, self.k_pos)(b, i, j))


@dataclass(frozen=True)
class ByRow:
    """The bias by_query[i, row(offset)] + by_key[j, back(offset)], one row for all beyond `reach`.

    `by_query` and `by_key` are (batch, head, token, row); `values`, (row, channel), is what the
    encoding adds to the values of keys at the offsets of `row`.
    """

    q_pos: Positions
    k_pos: KeyPositions
    reach: int
    row: Callable[[Tensor], Tensor]
    by_query: Tensor
    back: Callable[[Tensor], Tensor] | None = None
    by_key: Tensor | None = None
    values: Tensor | None = None

    def __call__(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        away = offset(self.q_pos, self.k_pos)(b, i, j)
        found = self.by_query[b, h, i, self.row(away)]
        if self.by_key is None or self.back is None:
            return found
        return found + self.by_key[b, h, j, self.back(away)]

    def block(self, rows: slice, keys: slice) -> Tensor:
        """The bias of these queries and keys, (batch, head, query, key), for one row of positions.

        One list of rows serves all heads: far faster than an index for each axis.
        """
        q_pos, k_pos = self.q_pos.reshape(-1)[rows], self.k_pos.reshape(-1)[keys]
        away = q_pos.unsqueeze(-1) - k_pos
        found = _looked_up(self.by_query[..., rows, :], self.row(away))
        if self.by_key is None or self.back is None:
            return found
        return found + _looked_up(self.by_key[..., keys, :], self.back(away).mT).mT


def _looked_up(table: Tensor, row: Tensor) -> Tensor:
    """table[..., n, row[n, m]], (batch, head, n, m)."""
    return table.gather(-1, row.expand(*table.shape[:-1], -1))


@dataclass(frozen=True)
class ByVector:
    """The bias x[i] · vectors(offset)[h], x being (batch, head, query, channel).

    `vectors` makes (head, offset, channel) of some offsets.
    """

    q_pos: Positions
    k_pos: KeyPositions
    x: Tensor
    vectors: Callable[[Tensor], Tensor]


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
    bias: Bias, shape: tuple[int, int, int, int], device: torch.device | None = None
) -> Tensor:
    """The bias of every pair at once, of a shape that broadcasts to (batch, head, query, key)."""
    return bias(*pairs(shape, device=device))
