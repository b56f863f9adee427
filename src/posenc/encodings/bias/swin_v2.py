"""Swin v2: a small network computes the bias of each offset from its logarithms (log-CPB).

    score(i, j) = qᵢ · kⱼ · scale + 16 σ( G_h(f(Δrow), f(Δcolumn)) )      Δ = pᵢ − pⱼ, in patches
    f(Δ) = sign(Δ) log₂(1 + 8 |Δ| / (M − 1)) / log₂ 8
    G(x) = W₂ ReLU(W₁ x + b₁)         σ: sigmoid        M: patches along a side of the window

The network has a value for every offset, so a model can use a larger window than in training; the
logarithm keeps the new arguments of G close to the trained ones. For another window, keep M and
set `reach`, from which on all offsets share a bias. The table of all offsets up to the reach is
computed in every call.

Liu et al. 2022, "Swin Transformer V2", arXiv:2111.09883, §3.3, eq. 3 and 4; the factors 8, log₂ 8
and 16 and the sigmoid are in the authors' code. The cosine attention of that model, whose scores
are τ cos(q, k), is not a positional encoding: normalise q and k, and pass `scale`.
"""

from math import log2

import torch
from torch import Tensor, nn

from posenc.biases.axes import cell, on_a_line, sides_of
from posenc.biases.distance import DistanceBias, looked_up
from posenc.compat.tracing import no_autocast, upcast
from posenc.core.encoding import Encoding
from posenc.core.shapes import Bias, Heads, KeyPoints, Keys, Points
from posenc.properties import several_axes
from posenc.properties.card import RELATIVE, Card, paper
from posenc.support.arguments import query_heads, room, whole_number


class SwinV2(Encoding):
    """Bias that a network computes from logarithms of the offset: `SwinV2(4, window=8)`.

    - `heads`: query heads
    - `window`: patches along each side of the window in training, or (rows, columns), at least 2;
      8 by default
    - `reach`: offset along each axis from which on all share a bias, or (rows, columns); None: the
      largest of the window
    - `hidden`: hidden units of the network, 512 by default

    >>> SwinV2(4, window=8, reach=15)
    SwinV2(4 heads, 2 axes, window=8 × 8, reach=15 × 15)

    Liu et al. 2022, arXiv:2111.09883, eq. 3 and 4.
    """

    axes = 2

    def __init__(
        self,
        heads: int,
        window: int | tuple[int, int] = 8,
        reach: int | tuple[int, int] | None = None,
        hidden: int = 512,
    ):
        super().__init__()
        self.heads, self.window = query_heads(heads), sides_of(window, "window")
        if min(self.window) < 2 or whole_number(hidden, "hidden") < 1:
            raise ValueError(
                "`window` must be at least 2 patches along each side and `hidden` at least 1, got"
                f" {window} and {hidden}."
            )
        rows, columns = self.window if reach is None else sides_of(reach, "reach")
        # Sides of a window in which offsets up to the reach occur
        self.sides = (rows, columns) if reach is None else (rows + 1, columns + 1)
        room("the network", hidden, heads)
        self.inner = nn.Linear(2, hidden)
        self.outer = nn.Linear(hidden, heads, bias=False)

    def on_scores(self, q: Heads, k: Keys, q_at: Points, k_at: KeyPoints, scale: float) -> Bias:
        table = self.of_offsets()

        def of_distance(h: Tensor, δ: Tensor) -> Tensor:
            return looked_up(table, h, cell(δ, self.sides))

        q_line, k_line = on_a_line(q_at, "SwinV2"), on_a_line(k_at, "SwinV2")
        return DistanceBias(of_distance, q, q_line, k_line)

    def of_offsets(self) -> Tensor:
        """Return the bias of each offset within `reach`, (head, offset), in row-major order."""
        weight, bias = upcast(self.inner.weight), upcast(self.inner.bias)
        along = [self._f(axis).to(weight) for axis in (0, 1)]
        x = torch.cartesian_prod(*along)
        with no_autocast(weight):
            logits = (x @ weight.mT + bias).relu() @ upcast(self.outer.weight).mT
        return 16 * logits.sigmoid().mT

    def _f(self, axis: int) -> Tensor:
        """Return the scaled logarithms of the offsets along an axis, most negative offset first."""
        reach = self.sides[axis] - 1
        Δ = torch.arange(-reach, reach + 1, dtype=torch.float64, device="cpu")
        return Δ.sign() * (1 + 8 * Δ.abs() / (self.window[axis] - 1)).log2() / log2(8)

    def extra_repr(self) -> str:
        (rows, columns), (high, wide) = self.window, self.sides
        reach = f"reach={high - 1} × {wide - 1}"
        return f"{self.heads} heads, 2 axes, window={rows} × {columns}, {reach}"


CARD = Card(
    name="Swin v2",
    paper=paper("liu2022swin"),
    used_by="Swin v2, Swin2SR",
    make=lambda dim, heads, **options: SwinV2(heads, **options),
    holds=RELATIVE | {several_axes},
)
