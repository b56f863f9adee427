"""Fixed θ for rotations along several directions of an image, not only rows and columns.

    θ[:, j] = ω_j u_j      ω_j: radians per patch      u_j: the unit vector (row, column) of pair j
    Spiral RoPE   ω_j = base^(−c/m),  c = j mod m,  m = d/4
                  u_j = (cos φ, sin φ) for j < m, then (−sin φ, cos φ);  φ = ⌊c/2⌋ mod (K/2) · π/K
    golden gate   ω_j = ω_min (ω_max / ω_min)^(j/(d/2 − 1)),  each head has directions of its own
                  u ∝ Φ⁻¹(frac(i φₙ⁻¹)), …, Φ⁻¹(frac(i φₙ⁻ⁿ)),  i = 1 + h d/2 + j
                  φₙ: the root of xⁿ⁺¹ = x + 1        Φ: the normal distribution        n axes

An axial score is a sum of a function of rows and a function of columns, which forms a cross around
a patch. With K evenly spread directions, Spiral RoPE forms a star; with K = 2 it is axial. The
directions of golden gate never repeat and cover the circle or the sphere evenly. These are values
of θ, not encodings of their own: `RoPE(spiral(64))`, and `Mixed(64, 6, freqs=golden_gate(64, 6),
learned=False)`.

Liu et al. 2026, "Spiral RoPE", arXiv:2602.03227, whose code (huajianduzhuo-code/Spiral_RoPE at
bde84ff) rotates the grid of angles by interpolation. It clamps what the rotation moves outside of
the image, so towards the corners its scores do not depend on the offset alone. This is not copied.
Xiong 2025, "On N-dimensional Rotary Positional Embeddings", jerryxio.ng/posts/nd-rope; φₙ is
computed by ten steps of fixed-point iteration, as in the code there.
"""

from math import pi

import torch
from jaxtyping import Float
from torch import Tensor

from posenc.core.frequencies import frequencies
from posenc.core.shapes import Frequencies
from posenc.support.arguments import brief, count, positive, query_heads, room, whole_number


def spiral(dim: int, directions: int = 4, base: float = 10_000.0) -> Frequencies:
    """Return θ of Spiral RoPE, (2, pair), for `RoPE` with points (row, column).

    - `dim`: channels of a head, a multiple of 4
    - `directions`: K, an even number of directions over the half circle; 4 by default
    - `base`: base of θ, 10,000 by default. The authors also multiply θ by 1.5

    Raises ValueError for any other `dim`, and for an odd number of directions.

    >>> spiral(16, base=16)[1].abs()
    tensor([0.0000, 0.0000, 0.1768, 0.0884, 1.0000, 0.5000, 0.1768, 0.0884],
           dtype=torch.float64)
    """
    if whole_number(dim, "dim") < 4 or dim % 4:
        raise ValueError(
            "`dim` must be a multiple of 4, because each of the two axes gets half of the channel"
            f" pairs, got {dim}."
        )
    if count(directions, "directions", 2) % 2:
        raise ValueError(
            "`directions` must be even, because directions come in pairs at a right angle, got"
            f" {directions}."
        )
    speed = frequencies(dim // 2, base)
    # Pairs 0 and 1 share the first direction, pairs 2 and 3 the second, and so on
    turns = torch.arange(dim // 4, device="cpu") // 2 % (directions // 2)
    φ = turns.double() * (pi / directions)
    cos, sin = speed * φ.cos(), speed * φ.sin()
    return torch.stack((torch.cat((cos, -sin)), torch.cat((sin, cos))))


def golden_gate(
    dim: int,
    heads: int,
    slowest: float,
    fastest: float,
    axes: int = 2,
    still: int = 0,
) -> Float[Tensor, "axis head pair"]:
    """Return θ of golden gate RoPE, (axis, head, pair), for `Mixed(…, freqs=…, learned=False)`.

    - `dim`: channels of a head, even
    - `heads`: query heads
    - `slowest`, `fastest`: smallest and largest ω other than 0, in radians per unit of position
    - `axes`: coordinates of a position, 2 by default
    - `still`: number of first pairs with ω = 0, which do not rotate; 0 by default

    Raises ValueError if fewer than two pairs rotate.

    >>> golden_gate(8, heads=6, slowest=1.0, fastest=8.0).shape
    torch.Size([2, 6, 4])
    """
    pairs, still = whole_number(dim, "dim") // 2, count(still, "still", 0)
    if dim % 2 or pairs - still < 2:
        raise ValueError(
            f"`dim` must be even and, with `still`={still}, at least {2 * still + 4}, got"
            f" {brief(dim)}."
        )
    turning = torch.linspace(0, 1, pairs - still, dtype=torch.float64, device="cpu")
    slowest, fastest = positive(slowest, "slowest"), positive(fastest, "fastest")
    speed = torch.cat((torch.zeros(still).double(), slowest * (fastest / slowest) ** turning))
    room("θ", count(axes, "axes", 2), query_heads(heads), pairs)
    φ = 2.0
    for _ in range(10):
        φ = (1 + φ) ** (1 / (axes + 1))
    powers = φ ** -torch.arange(1.0, axes + 1, dtype=torch.float64, device="cpu")
    index = torch.arange(1.0, heads * pairs + 1, dtype=torch.float64, device="cpu")
    normal = torch.special.ndtri((index * powers.unsqueeze(-1)) % 1)
    return (normal / normal.norm(dim=0)).unflatten(-1, (heads, pairs)) * speed
