"""MViTv2: add products of the query with a learned vector for each row offset and column offset.

    score(i, j) = qᵢ · kⱼ · scale + qᵢ · R^row[Δrow] + qᵢ · R^column[Δcolumn]
    Δ = pᵢ − pⱼ, in patches        Δrow = −(H − 1) … H − 1,  Δcolumn = −(W − 1) … W − 1

A vector for each offset in both axes would need (2H − 1)(2W − 1) vectors; one for each axis needs
2H + 2W − 2, and the two terms are added. Unlike Swin's numbers they depend on the query. The scale
of q · k does not apply to the terms. Offsets beyond the image share the vector at its edge.

Li et al. 2022, "MViTv2", arXiv:2112.01526, §4.1, eq. 3 and 4, without its third axis, time, and
without pooling, which divides the offsets of keys by their stride; as in ViTDet, arXiv:2203.16527,
and the image encoder of SAM.
"""

import torch
from torch import Tensor, nn

from posenc.biases.axes import sides_of
from posenc.biases.tables import TableBias
from posenc.core.biases import SumBias
from posenc.core.encoding import Encoding
from posenc.core.positions import whole
from posenc.core.shapes import Bias, Heads, KeyPoints, Keys, Points
from posenc.properties import several_axes
from posenc.properties.card import RELATIVE, Card, paper
from posenc.support.arguments import channels, room


class MViTv2(Encoding):
    """Scores of queries with a vector per row offset and column offset: `MViTv2(64, size=14)`.

    - `dim`: channels of a head
    - `size`: patches along each side of the image or window, or (rows, columns); 14 by default

    Points come from `positions.grid`. All heads share `rows` and `columns`, the tables R.

    >>> MViTv2(64, size=(8, 14)).columns.shape
    torch.Size([27, 64])

    Li et al. 2022, arXiv:2112.01526, eq. 3 and 4.
    """

    axes = 2

    def __init__(self, dim: int, size: int | tuple[int, int] = 14):
        super().__init__()
        self.dim, self.size = channels(dim), sides_of(size, "size")
        self.rows, self.columns = (
            nn.Parameter(torch.randn(room("a table", 2 * side - 1, dim)) * 0.02)
            for side in self.size
        )

    def on_scores(self, q: Heads, k: Keys, q_at: Points, k_at: KeyPoints, scale: float) -> Bias:
        return SumBias([self._along(axis, q, q_at, k_at) for axis in (0, 1)])

    def _along(self, axis: int, q: Heads, q_at: Points, k_at: KeyPoints) -> TableBias:
        """Return the bias that depends on the offset along one axis: rows (0) or columns (1)."""
        reach = self.size[axis] - 1

        def row(δ: Tensor) -> Tensor:
            return whole(δ, "MViTv2").clamp(-reach, reach) + reach

        table = self.columns if axis else self.rows
        return TableBias(q_at[..., axis], k_at[..., axis], reach, row, q, table)

    def extra_repr(self) -> str:
        return f"{self.dim} channels, 2 axes, size={self.size[0]} × {self.size[1]}"


CARD = Card(
    name="MViTv2",
    paper=paper("li2022mvitv2"),
    used_by="MViTv2, ViTDet, SAM",
    make=lambda dim, heads, **options: MViTv2(dim, **options),
    holds=RELATIVE | {several_axes},
)
