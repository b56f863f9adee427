"""Biases that depend on the distance between a query and a key alone.

    bias[i, j] = f(head, i − j)

At equally spaced positions the bias is constant along diagonals, and `attention/cpu/diagonals.py`
computes attention without a matrix of tokens². At all other positions `f` is called for blocks of
pairs, or read from a table.
"""

from typing import Any

import torch
from torch import Tensor

from posenc.compat.tracing import is_eager_cpu
from posenc.core.biases import OfDistance, ScoreBias, for_query_heads, offset, offsets
from posenc.core.positions import whole
from posenc.core.shapes import KeyPositions, PairBias, Positions


class DistanceBias(ScoreBias):
    """A bias f(head, offset), where the offset is query position − key position.

    - `f`: function of indices of heads and of offsets, which broadcast
    - `q`: queries, for the number of heads
    - `q_pos`, `k_pos`: positions of queries and keys
    - `reach`: if given, offsets must be whole numbers, f must be constant beyond −reach and reach,
      and its values are read from a table
    - `all_heads`: True if f(None, offset) returns the bias of all heads, for offsets that are the
      same for all heads, (batch or 1, 1, query, key)

    At equally spaced positions the bias is a Toeplitz matrix, a strided view of one vector per
    head.
    """

    def __init__(
        self,
        f: OfDistance,
        q: Tensor,
        q_pos: Positions,
        k_pos: KeyPositions,
        reach: int | None = None,
        all_heads: bool = False,
    ):
        self.f = self.distance = f
        self.q_pos, self.heads = q_pos, q.shape[1]
        one_for_all = k_pos.ndim < 3 or k_pos.shape[1] == 1
        self.k_pos = k_pos if one_for_all else for_query_heads(k_pos, self.heads)
        self.reach, self.all_heads = reach, all_heads
        self.lookup = f if reach is None else None
        if reach is not None and not is_eager_cpu(q_pos):
            self.hold()

    def hold(self) -> None:
        self.lookup = self.lookup or self.of_pairs()

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        apart, h = offsets(self.q_pos, self.k_pos, rows, keys), None
        if not self.all_heads or apart.shape[1] != 1:
            h = torch.arange(self.heads, device=apart.device).view(1, -1, 1, 1)
        if self.lookup is None and self.reach is not None and apart.numel() <= 16 * self.reach:
            # For few pairs, f is cheaper than a table
            return self.f(h, self._whole(apart))
        return (self.lookup or self.of_pairs())(h, apart)

    def pair(self) -> PairBias:
        apart, f = offset(self.q_pos, self.k_pos), self.lookup or self.of_pairs()
        return lambda b, h, i, j: f(h, apart(b, h, i, j))

    def of_pairs(self) -> OfDistance:
        """Tabulate the bias at offsets −reach … reach; return a function that reads the table."""
        reach, device = self.reach, self.q_pos.device
        assert reach is not None
        heads = torch.arange(self.heads, device=device)
        tabulated = torch.arange(-reach, reach + 1, device=device)
        table = self.f(heads.unsqueeze(-1), tabulated)
        # On CUDA, FlexAttention cannot be compiled for numbers that change
        ends: Any = (tabulated[0], tabulated[-1]) if tabulated.is_cuda else (-reach, reach)
        first, last = ends
        return lambda h, apart: looked_up(table, h, self._whole(apart).clamp(first, last) - first)

    def _whole(self, apart: Tensor) -> Tensor:
        return whole(apart, type(getattr(self.f, "__self__", self)).__name__)


def looked_up(table: Tensor, h: Tensor | None, columns: Tensor) -> Tensor:
    """Read a table (head, column) at indices of heads and columns that broadcast together.

    `h` None: all heads index the same columns, (batch or 1, 1, query, key).
    """
    if h is not None and (h.ndim < 4 or h.shape[1] != len(table) or columns.shape[1] != 1):
        return table[h, columns]
    # All heads index the same columns, which is ten times as fast
    found = table.index_select(1, columns.flatten())
    return found.reshape(table.shape[0], columns.shape[0], *columns.shape[2:]).transpose(0, 1)
