"""The bias of a count: a row of a table for how many tokens a query has found worth counting.

It is written once here; `attention/cpu` computes attention with it without counting far keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.compat.tracing import in_full
from posenc.core.biases import ScoreBias
from posenc.core.shapes import Heads, Keys


def counted(gates: Tensor) -> Tensor:
    """Σ of the gates of each key and of those after it, (…, key).

    >>> counted(torch.tensor([0.5, 1.0, 0.0]))
    tensor([1.5000, 1.0000, 0.0000])
    """
    return gates.flip(-1).cumsum(-1).flip(-1)


@dataclass(eq=False)
class CountBias(ScoreBias):
    """The bias qᵢ · e(n) of these queries and keys, whose product is multiplied by `scale`."""

    q: Heads
    k: Keys  # as many heads as q
    rows: Tensor  # e, (count, channel)
    scale: float

    def block(self, rows: slice, keys: slice, seen: Tensor | None = None) -> Tensor:
        q, last = self.q[..., rows, :], len(self.rows) - 1
        # A count of gates in 16 bits could not grow past 256
        with in_full(q):
            gates = (q @ self.k[..., keys, :].mT * self.scale).sigmoid()
            e = q @ self.rows.mT  # at each whole number, (batch, head, query, count)
        # Not a product: 0 · NaN, of a key that nobody sees, would be NaN
        if seen is not None:
            gates = gates.masked_fill(~seen, 0)
        n = counted(gates).clamp_max(last)
        # NaN that a query does see is no index, and goes by n into its scores
        whole = n.detach().long().clamp(0, last)
        # The step from each row to the next; there is none after the last
        step = torch.cat((e.diff(), torch.zeros_like(e[..., :1])), -1)
        return e.gather(-1, whole) + (n - whole) * step.gather(-1, whole)
