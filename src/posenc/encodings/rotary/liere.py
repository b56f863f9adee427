"""LieRE: rotate all channels of a head together, by a learned matrix for each axis of the position.

    liere(x, p) = R(p) x,   R(p) = exp( Σ_a p_a A_a )       p_a: position along axis a
    A_a = U_a − U_aᵀ,   U_a above its diagonal learned, initially uniform in 0 … 2π

exp of a skew-symmetric matrix is a rotation, so norms are preserved. With blocks of two channels it
is RoPE with learned frequencies. Larger blocks do not commute, R(p)ᵀ R(p′) ≠ R(p′ − p), so a score
depends on both positions and not only on their offset; with a single axis they do commute. Each
token has its own matrix, with `block` numbers per channel.

Ostmeier et al. 2024, "LieRE: Lie Rotational Positional Encodings", arXiv:2406.10322, §3; initial
values as in the authors' code, where the width of an image is 1: divide positions by the size of
your image. All heads share one R by default; the authors' experiments have one per head, `heads`.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from posenc.core.biases import for_query_heads
from posenc.core.encoding import Encoding
from posenc.core.positions import exact, refuse_other_axes
from posenc.core.prepared import Prepared
from posenc.core.shapes import Heads, PerHead, Points, Positions
from posenc.properties import (
    any_length,
    bounded,
    learned,
    length_independent,
    norm_constant,
    norm_preserving,
    order_sensitive,
    several_axes,
    unique_positions,
)
from posenc.properties.card import Card, paper
from posenc.rotation.matrices import rotations, skew, turned, turned_keys
from posenc.support.arguments import channels, count, query_heads, room


class Rotations(Prepared, NamedTuple("Rotations", [("matrix", Tensor)])):
    """The rotation matrices R(p), shape (*batch, 1 or head, token, block, row, column)."""

    shape = "head token block row column"


class LieRE(Encoding):
    """Rotation of blocks of channels by learned generators, for points of a grid: `LieRE(64)`.

    - `dim`: channels of a head
    - `axes`: coordinates of a position, 2 by default
    - `block`: channels that are rotated together, a divisor of `dim`; None: all. LieRE₈ of the
      paper is `LieRE(64, block=8)`
    - `heads`: query heads, each with its own rotation; None: one rotation for all

    Raises ValueError for fewer than two channels per axis, and for a `block` that does not divide
    `dim`.

    >>> LieRE(64, block=8).generators.shape
    torch.Size([2, 8, 8, 8])
    """

    prepared = Rotations

    def __init__(self, dim: int, axes: int = 2, block: int | None = None, heads: int | None = None):
        super().__init__()
        self.dim, self.axes = channels(dim), count(axes, "axes")
        block = self.dim if block is None else count(block, "block", 2)
        if dim < 2 * axes or dim % block:
            raise ValueError(
                "`dim` must be at least two channels per axis, and a multiple of `block`, got"
                f" `dim`={dim}, `axes`={axes} and `block`={block}."
            )
        self.heads = 0 if heads is None else query_heads(heads)
        shape = room("generators", axes, (self.heads or 1) * (dim // block), block, block)
        self.generators = nn.Parameter(torch.rand(shape) * 2 * torch.pi)

    def prepare(self, pos: Positions | Points) -> Rotations:
        pos = exact(pos).double()
        pos = pos if self.axes > 1 else pos.unsqueeze(-1)
        refuse_other_axes(pos, self.axes, "this LieRE has")
        matrix = rotations(pos, skew(self.generators)).float()
        matrix = matrix if pos.ndim == 4 else matrix.unsqueeze(-5)
        return Rotations(self._own(matrix) if self.heads else matrix)

    def _own(self, matrix: Tensor) -> Tensor:
        """Select each head's own rotation matrices, from a tensor with those of all heads.

        `matrix` is (…, 1 or head, token, head · block, …). The first of these axes is the head of
        the position, or 1; the last one has the head of the generators.
        """
        matrix = for_query_heads(matrix, self.heads) if matrix.ndim == 6 else matrix
        each = matrix.unflatten(-3, (self.heads, -1)).transpose(-5, -4)
        each = each.expand(*each.shape[:-6], self.heads, *each.shape[-5:])
        return each.diagonal(dim1=-6, dim2=-5).movedim(-1, -5)

    def on_queries(self, q: Heads, at: Rotations) -> Heads:
        return turned(q, at.matrix)

    def on_keys(self, k: Heads, at: Rotations) -> PerHead:
        return turned_keys(k, at.matrix)

    def extra_repr(self) -> str:
        each = f", each of {self.heads} heads" if self.heads else ""
        return f"{self.dim} channels, {self.axes} axes, block={self.generators.shape[-1]}{each}"


CARD = Card(
    name="LieRE",
    paper=paper("ostmeier2024liere"),
    make=lambda dim, heads, **options: LieRE(dim, **options),
    holds=frozenset(
        {unique_positions, bounded, norm_constant, norm_preserving, any_length}
        | {length_independent, order_sensitive, learned, several_axes}
    ),
)
