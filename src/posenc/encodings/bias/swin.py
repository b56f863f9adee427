"""Swin: a learned bias for each head and each offset between two patches of a window.

    score(i, j) = qᵢ · kⱼ · scale + B_h[Δrow, Δcolumn]          Δ = pᵢ − pⱼ, in patches
    Δrow = −(M₀ − 1) … M₀ − 1,  Δcolumn = −(M₁ − 1) … M₁ − 1     window of M₀ × M₁ patches

The bias depends only on the offset, but on both of its coordinates together: any pattern over a
window can be learned, with (2M₀ − 1)(2M₁ − 1) numbers for each head. Offsets beyond the window
share the number at its edge; Swin itself attends only within windows. BEiT attends to all patches
and to a class token, which has no place among them. With `class_token=True` each head has three
more numbers, for the pairs class–patch, patch–class and class–class.

Liu et al. 2021, "Swin Transformer", arXiv:2103.14030, eq. 4; Bao et al. 2022, "BEiT",
arXiv:2106.08254, whose code adds the class token. The rows of the table are in the order of both.
"""

import torch
from torch import Tensor, nn

from posenc.biases.axes import cell, on_a_line, sides_of
from posenc.biases.distance import DistanceBias, looked_up
from posenc.compat.tracing import upcast
from posenc.core.encoding import Encoding
from posenc.core.shapes import Bias, Heads, KeyPoints, Keys, Points, Positions
from posenc.properties import several_axes
from posenc.properties.card import RELATIVE, Card, paper
from posenc.support.arguments import query_heads, room, switch

# Differences of these numbers, and from those of patches, round to different multiples of 2⁶⁰
QUERY_CLASS, KEY_CLASS = 2**61, -(2**62)


class Swin(Encoding):
    """Learned bias for each head and offset in a window of patches: `Swin(4, window=7)`.

    - `heads`: query heads
    - `window`: patches along each side of a window, or (rows, columns); 7 by default
    - `class_token`: True adds the three numbers of BEiT; tokens with a negative row are class
      tokens

    Points come from `positions.grid`.

    >>> Swin(4, window=7).table.shape, Swin(12, window=14, class_token=True).table.shape
    (torch.Size([169, 4]), torch.Size([732, 12]))

    Liu et al. 2021, arXiv:2103.14030, eq. 4.
    """

    axes = 2

    def __init__(self, heads: int, window: int | tuple[int, int] = 7, class_token: bool = False):
        super().__init__()
        self.heads, self.sides = query_heads(heads), sides_of(window, "window")
        self.class_token = switch(class_token, "class_token")
        self.cells = (2 * self.sides[0] - 1) * (2 * self.sides[1] - 1)
        rows = self.cells + 3 * class_token
        self.table = nn.Parameter(torch.randn(room("a table", rows, heads)) * 0.02)

    def on_scores(self, q: Heads, k: Keys, q_at: Points, k_at: KeyPoints, scale: float) -> Bias:
        table = upcast(self.table).mT

        def of_distance(h: Tensor, δ: Tensor) -> Tensor:
            return looked_up(table, h, self.row(δ))

        q_line, k_line = self._line(q_at, QUERY_CLASS), self._line(k_at, KEY_CLASS)
        return DistanceBias(of_distance, q, q_line, k_line)

    def _line(self, at: Points, of_class: int) -> Positions:
        line = on_a_line(at, "Swin")
        return line.where(at[..., 0] >= 0, of_class) if self.class_token else line

    def row(self, δ: Tensor) -> Tensor:
        """Return the row of the table with the bias of an offset.

        - `δ`: difference of two numbers of `_line`
        """
        row = cell(δ, self.sides)
        if self.class_token:
            # 0 for two patches, 2 for a class token and a patch, 4 for the reverse, 6 for two
            kind = torch.div(δ + 2**59, 2**60, rounding_mode="floor")
            row = torch.where(
                kind > 0, self.cells - 1 + torch.div(kind, 2, rounding_mode="floor"), row
            )
        return row

    def extra_repr(self) -> str:
        rows, columns = self.sides
        kept = ", class_token=True" if self.class_token else ""
        return f"{self.heads} heads, 2 axes, window={rows} × {columns}{kept}"


CARD = Card(
    name="Swin",
    paper=paper("liu2021swin"),
    used_by="Swin, BEiT, Data2Vec-Vision, Donut",
    make=lambda dim, heads, **options: Swin(heads, **options),
    holds=RELATIVE | {several_axes},
)
