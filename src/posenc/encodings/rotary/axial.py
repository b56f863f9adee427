"""Axial RoPE: divide the pairs of channels among the axes of an image or a volume.

    rope(x, p)ⱼ = xⱼ · exp(i p_a θ_c)       pair j = a·m + c belongs to axis a = 0 … n − 1
    θ_c = base^(−c/m),  c = 0 … m − 1       m = ⌊d/2n⌋ pairs for each axis, radians per cell

In the matrix (axis, pair), each column has one θ and zeros elsewhere, so an angle is the sum
Σ_a p_a θ[a, j] and a score depends on the offset along each axis. If n does not divide d/2, the
remaining pairs are not rotated. (Rotating one pair by both x and y would mix the two offsets.) With
`sections`, axis a has its own number m_a of pairs and its own base, and all pairs are rotated:

    FLUX.2      axial(128, 4, 2000, (16, 16, 16, 16))
    Qwen-Image  axial(128, 3, 10_000, (8, 28, 28))
    Z-Image     axial(128, 3, 256, (16, 24, 24))
    Wan         axial(128, 3, 10_000, (22, 21, 21))

Su 2021, "Transformer upgrade 4: rotary position encoding in 2-D", kexue.fm/archives/8397; used in
EVA-02, arXiv:2303.11331. V-JEPA 2, arXiv:2506.09985, divides the pairs among 3 axes like this, but
its code tiles cos and sin over interleaved pairs, so that the two channels of a pair have different
angles. This is not a rotation, and not copied here.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from posenc.core.frequencies import frequencies
from posenc.core.shapes import Frequencies
from posenc.encodings.rotary.mrope import pairs_of_axes
from posenc.encodings.rotary.rope import RoPE
from posenc.properties import several_axes
from posenc.properties.card import ROTATION, Card, paper
from posenc.support.arguments import channels, whole_number


def axial(
    dim: int,
    axes: int = 2,
    base: float | Sequence[float] = 10_000.0,
    sections: Sequence[int] | None = None,
) -> Frequencies:
    """Divide pairs of channels among the axes: return θ of shape (axis, pair) for `RoPE`.

    - `dim`: channels of a head, even, at least two for each axis
    - `axes`: coordinates of a position, 2 by default
    - `base`: base of θ, 10,000 by default; or one for each axis
    - `sections`: pairs of each axis, with the sum dim / 2; None: equal shares, and remaining pairs
      are not rotated

    Raises ValueError for an axis without a pair of channels, and for sections or bases that
    do not fit `dim` and `axes`.

    >>> axial(8, axes=2).tolist()
    [[1.0, 0.01, 0.0, 0.0], [0.0, 0.0, 1.0, 0.01]]
    >>> axial(8, axes=2, base=(100, 16), sections=(1, 3)).tolist()
    [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.396..., 0.157...]]
    """
    if whole_number(axes, "axes") < 1 or whole_number(dim, "dim") < 2 * axes or dim % 2:
        raise ValueError(
            f"`dim` must be even and at least {2 * axes}, a pair of channels for each of"
            f" `axes`={axes}, got {dim}."
        )
    channels(dim)
    shares = [dim // (2 * axes)] * axes if sections is None else pairs_of_axes(sections)
    bases = [*base] if isinstance(base, Sequence) else [base] * axes
    if len(shares) != axes or min(shares) < 1 or (sections and 2 * sum(shares) != dim):
        raise ValueError(
            f"`sections` must be {axes} positive numbers of pairs with the sum {dim // 2}, got"
            f" {shares}. Count pairs, which are half of the channels."
        )
    if len(bases) != axes:
        raise ValueError(
            f"`base` must be one number, or a list of {axes} numbers, one per axis, got {bases}."
        )
    theta = torch.zeros(axes, dim // 2, dtype=torch.float64, device="cpu")
    ends = accumulate(shares)
    for axis, (share, end) in enumerate(zip(shares, ends, strict=True)):
        theta[axis, end - share : end] = frequencies(2 * share, bases[axis])
    return theta


def AxialRoPE(
    dim: int,
    axes: int = 2,
    base: float | Sequence[float] = 10_000.0,
    sections: Sequence[int] | None = None,
    **options: Any,
) -> RoPE:
    """Return a `RoPE` with pairs divided among the axes of an image or a volume.

    - `dim`: channels of a head
    - `axes`: coordinates of a position: 2 for (row, column), 3 for (frame, row, column)
    - `base`: base of θ, or one for each axis
    - `sections`: pairs of each axis; None: equal shares
    - `options`: other arguments of `RoPE`, for instance `layout`

    >>> AxialRoPE(8)
    RoPE(8 channels, 2 axes, base=10000, layout='interleaved')
    """
    return RoPE(axial(dim, axes, base, sections), **options)


def AxialRoPE3D(dim: int, base: float = 10_000.0, **options: Any) -> RoPE:
    """Return `AxialRoPE` with three axes, for points (frame, row, column).

    - `dim`: channels of a head
    - `base`: base of θ on each axis, 10,000 by default
    - `options`: other arguments of `RoPE`, for instance `layout`

    >>> AxialRoPE3D(12)
    RoPE(12 channels, 3 axes, base=10000, layout='interleaved')
    """
    return AxialRoPE(dim, 3, base, **options)


CARD = Card(
    name="Axial RoPE",
    paper=paper("su2021rope2d"),
    used_by="EVA-02, Pixtral",
    make=lambda dim, heads, **options: AxialRoPE(dim, 2, **options),
    holds=ROTATION | {several_axes},
)

CARD_3D = Card(
    name="Axial RoPE 3-D",
    paper=paper("assran2025vjepa2"),
    used_by="V-JEPA 2",
    make=lambda dim, heads, **options: AxialRoPE3D(dim, **options),
    holds=ROTATION | {several_axes},
    docstring=(__doc__ or "")
    .strip()
    .replace("the axes of an image or a volume", "the frames, rows and columns of a video"),
)
