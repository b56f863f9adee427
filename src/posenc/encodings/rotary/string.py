"""STRING: RoPE in a learned basis of the channels.

    string(x, p) = rope(Pᵀ x, p)          P = (1 − S)(1 + S)⁻¹,  S = −Sᵀ learned, initially 0
    ⟨string(q, p), string(k, r)⟩ = qᵀ R(r − p) k,   R(p) = P rope(·, p) Pᵀ = exp( Σ_a p_a L_a )

The L_a, one for each axis of the position, are skew-symmetric and commute, as in RoPE. Commuting
matrices have a common basis, in which they are a RoPE, so STRING is the most general rotation whose
scores depend on offsets. The left P of R cancels in every dot product and is left out. The initial
encoding is `RoPE(axial(dim, axes))`; training changes which channels rotate together.

Schenck et al. 2025, "Learning the RoPEs: Better 2D and 3D Position Encodings with STRING",
arXiv:2502.02562, §3, Cayley-STRING. All heads share one basis here, and frequencies are fixed.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, checked, frequencies
from posenc.core.prepared import Prepared
from posenc.core.shapes import Heads, PerHead, Points, Positions
from posenc.encodings.rotary.axial import axial
from posenc.properties import learned, several_axes
from posenc.properties.card import ROTATION, Card, paper
from posenc.rotation.matrices import cayley, in_basis, skew
from posenc.rotation.rotate import rotate, rotate_keys
from posenc.rotation.table import Turn, turn
from posenc.support.arguments import count, room


class Basis(Prepared, NamedTuple("Basis", [("by", Turn), ("basis", Tensor)])):
    """cos and sin of p·θ, and the basis P of the rotation, (channel, channel)."""

    shape = "head token pair", "row column"


class STRING(Encoding):
    """Rotation in a learned basis: `STRING(64)`, or `STRING(64, axes=1)` for text.

    - `dim`: channels of a head
    - `axes`: coordinates of a position, 2 by default
    - `base`: base of θ on each axis, 10,000 by default
    - `layout`: "interleaved" pairs neighbouring channels, "half" channel j with j + dim / 2

    Raises ValueError if `dim` is odd or has no pair of channels for each axis.

    >>> STRING(64, axes=1).skew.shape
    torch.Size([64, 64])

    Schenck et al. 2025, arXiv:2502.02562, §3.
    """

    prepared = Basis

    def __init__(
        self, dim: int, axes: int = 2, base: float = 10_000.0, layout: Layout = "interleaved"
    ):
        super().__init__()
        self.axes = count(axes, "axes")
        self.layout: Layout = checked(layout)
        self.freqs = frequencies(dim, base) if axes == 1 else axial(dim, axes, base)
        self.dim, self.base = dim, float(base)
        self.skew = nn.Parameter(torch.zeros(room("a basis", dim, dim)))

    def prepare(self, pos: Positions | Points) -> Basis:
        return Basis(turn(pos, self.freqs), cayley(skew(self.skew)).float())

    def on_queries(self, q: Heads, at: Basis) -> Heads:
        return rotate(in_basis(q, at.basis), at.by, self.layout).to(q.dtype)

    def on_keys(self, k: Heads, at: Basis) -> PerHead:
        return rotate_keys(in_basis(k, at.basis), at.by, self.layout).to(k.dtype)


CARD = Card(
    name="STRING",
    paper=paper("schenck2025learning"),
    make=lambda dim, heads, **options: STRING(dim, **options),
    holds=ROTATION | {several_axes, learned},
)
