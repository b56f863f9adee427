"""RoPE-Mixed: learn the direction in the image along which each pair of channels rotates.

    rope(x, p)ⱼ = xⱼ · exp(i (p₀ θ₀[h, j] + p₁ θ₁[h, j]))       p = (row, column), in cells
    initially (θ₀, θ₁)[h, j] = base^(−4j/d) · (cos φ_h, sin φ_h)               j = 0 … d/4 − 1
    and the same for the other half of the pairs with φ_h + π/2

Axial RoPE treats rows and columns separately; a pair that rotates with both can represent diagonal
directions. Every head has its own random φ_h. A score still depends only on the offset along each
axis. Keys are rotated differently for each query head, so query heads that share a key need a copy
each.

Heo et al. 2024, "Rotary Position Embedding for Vision Transformer", arXiv:2403.13298: RoPE-Mixed,
with a θ for each layer. The initial θ is in the authors' code, where the first axis is the column;
use `flip(0)` to load their θ. Keep this module in float32: bfloat16 rounds θ by up to one part in
512, a tenth of a radian at cell 50.
"""

from math import pi

import torch
from jaxtyping import Float
from torch import Tensor, nn

from posenc.core.biases import for_query_heads
from posenc.core.encoding import Encoding
from posenc.core.frequencies import Layout, checked, frequencies
from posenc.core.shapes import Heads, PerHead, Points
from posenc.properties import learned, several_axes
from posenc.properties.card import ROTATION, Card, paper
from posenc.rotation.rotate import rotate, rotate_keys
from posenc.rotation.table import Turn, turn
from posenc.support.arguments import query_heads, room, switch, whole_number


def slanted(dim: int, phi: Float[Tensor, "head"], base: float) -> Float[Tensor, "axis head pair"]:
    """Return θ of each head: half of its pairs rotate along φ, the other half perpendicular to φ.

    The fastest pair has 1 radian per patch.
    """
    if whole_number(dim, "dim") < 4 or dim % 4:
        raise ValueError(
            "`dim` must be a multiple of 4, because each of the two axes gets half of the channel"
            f" pairs, got {dim}."
        )
    room("θ", len(phi), dim)
    speed, phi = frequencies(dim // 2, base), phi.double().unsqueeze(-1)
    each = [
        torch.cat((f(phi) * speed, f(phi + pi / 2) * speed), -1) for f in (torch.cos, torch.sin)
    ]
    return torch.stack(each)


class Mixed(Encoding):
    """Rotation along learned directions of an image: `Mixed(64, heads=6)`.

    - `dim`: channels of a head, a multiple of 4
    - `heads`: query heads; each has directions of its own
    - `base`: base of the initial θ, 10 by default
    - `layout`: "interleaved" pairs neighbouring channels, "half" channel j with j + dim / 2
    - `freqs`: θ in radians per cell, (axis, head, pair), for instance `golden_gate`; None: the
      initial θ of the paper, for two axes
    - `learned`: False keeps θ constant, in float64

    Points come from `positions.grid`. Raises ValueError if `dim` is not a multiple of 4, and for
    `freqs` of another shape.

    >>> Mixed(64, heads=6).freqs.shape
    torch.Size([2, 6, 32])

    Heo et al. 2024, arXiv:2403.13298, RoPE-Mixed.
    """

    prepared = Turn

    def __init__(
        self,
        dim: int,
        heads: int,
        base: float = 10.0,
        layout: Layout = "interleaved",
        freqs: Float[Tensor, "axis head pair"] | None = None,
        learned: bool = True,
    ):
        super().__init__()
        self.dim, self.heads, self.base = dim, query_heads(heads), float(base)
        self.layout: Layout = checked(layout)
        if freqs is None:
            freqs = slanted(dim, 2 * pi * torch.rand(heads, device="cpu"), base)
        elif freqs.ndim != 3 or len(freqs) < 2 or freqs.shape[1:] != (heads, dim / 2):
            raise ValueError(
                f"`freqs` must be θ of shape (axis, {heads}, {dim / 2:g}), with at least two axes,"
                f" got {tuple(freqs.shape)}."
            )
        self.axes = len(freqs)
        self.freqs = nn.Parameter(freqs.float()) if switch(learned, "learned") else freqs.double()

    def prepare(self, pos: Points) -> Turn:
        # Each head has its own θ: (…, token, head · pair)
        every = turn(pos, self.freqs.flatten(1))
        return Turn(*map(self._own, every))

    def _own(self, x: Tensor) -> Tensor:
        """Select each head's own rotations, from a tensor with those of all heads.

        The result is (…, head, token, pair).

        The axis before `token` is the head of the position, or 1; the last axis has the head of θ.
        """
        x = for_query_heads(x, self.heads) if x.ndim == 4 else x
        x = x.unflatten(-1, (self.heads, -1)).expand(*x.shape[:-3], self.heads, -1, -1, -1)
        return x.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)

    def on_queries(self, q: Heads, at: Turn) -> Heads:
        return rotate(q, at, self.layout)

    def on_keys(self, k: Heads, at: Turn) -> PerHead:
        return rotate_keys(k, at, self.layout)


CARD = Card(
    name="RoPE-Mixed",
    paper=paper("heo2024rotary"),
    make=lambda dim, heads, **options: Mixed(dim, heads, **options),
    holds=ROTATION | {several_axes, learned},
)
