"""Sinusoidal grid: add sines and cosines of the row and of the column of a patch.

    PE(p) = [S(p₀), S(p₁)]          p = (row, column); n axes have w/n channels each
    S(x)_{2c} = sin(x θ_c)          θ_c = base^(−2c n/w),  c = 0 … w/2n − 1, radians per unit
    S(x)_{2c+1} = cos(x θ_c)        layout="half": all sines of an axis first, then its cosines

Each axis has the clocks of `Sinusoidal`, so ⟨PE(p), PE(q)⟩ = Σ_a Σ_c cos((p_a − q_a) θ_c) depends
only on the offset along each axis, and is largest along the row and the column of a patch. Models
differ in the positions, not in the formula:

    MAE           half; points (column, row) from 0: `grid(14, 14).flip(-1)`
    RT-DETR       half; points from 0: `grid(20, 20)`
    DETR, counted     points from 1: `grid(25, 34) + 1`
    DETR, normalised  `(grid(25, 34) + 1) / tensor([25, 34]) * 2 * pi`: an image spans 2π on each
                      axis, so rows are compared across sizes, but distances in patches are lost

Vaswani et al. 2017 per axis; Carion et al. 2020, "End-to-End Object Detection with Transformers",
arXiv:2005.12872, appendix A.4, which adds the rows to queries and keys of every layer; He et al.
2022, arXiv:2111.06377, which adds them once. DETR's code also adds 10⁻⁶ to the divisor.
"""

import torch

from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, checked, frequencies
from posenc.core.positions import exact, refuse_other_axes
from posenc.core.shapes import Embeddings, Points
from posenc.encodings.additive.add import TokenRows, add
from posenc.encodings.additive.sinusoidal import sines_and_cosines
from posenc.properties import (
    any_length,
    bounded,
    length_independent,
    linear_shift,
    norm_constant,
    order_sensitive,
    several_axes,
    unique_positions,
)
from posenc.properties.card import Card, paper
from posenc.support.arguments import channels, count


class SinusoidalGrid(Encoding):
    """Sines and cosines of each coordinate, added to embeddings: `SinusoidalGrid(256)`.

    - `width`: channels of the embeddings, an even number for each axis
    - `axes`: coordinates of a position: 2, the default, for (row, column), 3 for video
    - `base`: base of θ, 10,000 by default
    - `layout`: "interleaved" alternates sine and cosine, "half" puts the sines of an axis first

    Raises ValueError if the axes cannot share `width` equally in pairs.

    >>> from posenc.positions import grid
    >>> SinusoidalGrid(4)(torch.zeros(4, 4), grid(2, 2))[2:]
    tensor([[0.8415, 0.5403, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.8415, 0.5403]])

    Carion et al. 2020, arXiv:2005.12872, appendix A.4.
    """

    prepared = TokenRows

    def __init__(
        self,
        width: int,
        axes: int = 2,
        base: float = 10_000.0,
        layout: Layout = "interleaved",
    ):
        super().__init__()
        self.axes = count(axes, "axes", 2)
        if channels(width, "width") % (2 * axes):
            raise ValueError(
                f"`width` must be a multiple of {2 * axes}, pairs of channels for each of {axes}"
                f" axes, got {width}."
            )
        self.width, self.base = width, float(base)
        self.freqs = frequencies(width // axes, base)
        self.layout: Layout = checked(layout)

    def prepare(self, pos: Points) -> TokenRows:
        refuse_other_axes(exact(pos), self.axes, "this encoding has")
        each = [sines_and_cosines(along, self.freqs, self.layout) for along in pos.unbind(-1)]
        return TokenRows(torch.cat(each, -1))

    def on_embeddings(self, x: Embeddings, at: TokenRows) -> Embeddings:
        return add(x, at.rows)


CARD = Card(
    name="Sinusoidal grid",
    paper=paper("carion2020end"),
    used_by="DETR, MAE, SAM 2",
    make=lambda dim, heads, **options: SinusoidalGrid(dim * heads, **options),
    holds=frozenset(
        {unique_positions, bounded, norm_constant, linear_shift}
        | {any_length, length_independent, order_sensitive, several_axes}
    ),
)
