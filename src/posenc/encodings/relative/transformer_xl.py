"""Transformer-XL: add score terms that depend on content, on the offset, or on both.

    score(i, j) = ( (qᵢ + u_h) · kⱼ + (qᵢ + v_h) · W_h R(pᵢ − pⱼ) ) · scale
    R(δ) = [sin δθ₀ … sin δθ_{w/2−1}, cos δθ₀ … cos δθ_{w/2−1}]
    θⱼ = base^(−2j/w),  j = 0 … w/2 − 1     radians per token

u and v are learned vectors, one for each head; W_h projects the w channels of R to those of a head.
W_h R is computed per offset rather than per pair, because equally spaced positions have few
different offsets; see `VectorBias`.

Offsets may have either sign, so this is also the relative encoding of Conformers. In their
published weights the columns of W alternate between sines and cosines; the even ones come first
here: `project[..., 0::2]`, then `project[..., 1::2]`. Their "relative shift" only reads W_h R.

Dai et al. 2019, "Transformer-XL", arXiv:1901.02860, §3.3, which has the names u, v and W_{k,R};
Gulati et al. 2020, "Conformer", arXiv:2005.08100, §2.1.
"""

import torch
from torch import Tensor, nn

from posenc.biases.vectors import VectorBias
from posenc.core.encoding import Encoding
from posenc.core.frequencies import angles, frequencies
from posenc.core.shapes import Bias, Heads, KeyPositions, Keys, Positions
from posenc.properties.card import RELATIVE, Card, paper
from posenc.support.arguments import channels, query_heads, room, whole_number


class TransformerXL(Encoding):
    """Scores from content and from projected sinusoids of the offset: `TransformerXL(64, heads=8)`.

    - `dim`: channels of a head
    - `heads`: query heads
    - `width`: channels of the sinusoids; None: dim · heads
    - `base`: base of θ, 10,000 by default

    >>> TransformerXL(64, heads=8).project.shape
    torch.Size([8, 64, 512])

    Dai et al. 2019, arXiv:1901.02860, §3.3.
    """

    def __init__(self, dim: int, heads: int, width: int | None = None, base: float = 10_000.0):
        super().__init__()
        self.dim, self.heads = channels(dim), query_heads(heads)
        width = dim * heads if width is None else whole_number(width, "width")
        self.freqs, self.base = frequencies(width, base), float(base)
        room("a projection", heads, dim, width)
        self.u = nn.Parameter(torch.randn(heads, 1, dim) * 0.02)
        self.v = nn.Parameter(torch.randn(heads, 1, dim) * 0.02)
        self.project = nn.Parameter(torch.randn(heads, dim, width) * width**-0.5)

    def on_scores(
        self, q: Heads, k: Keys, q_at: Positions, k_at: KeyPositions, scale: float
    ) -> Bias:
        return VectorBias(
            q_at, k_at, q, k, self.u, self.v, scale, self.project, self.sinusoids
        )  # fmt: skip

    def sinusoids(self, pos: Positions) -> Tensor:
        """Return the sines and then the cosines of offsets at all frequencies, in float64.

        The shape is (*batch, token, channel), with as many sines as cosines.

        - `pos`: offsets in tokens, (*batch, token)
        """
        angle = angles(pos, self.freqs)
        return torch.cat((angle.sin(), angle.cos()), -1)


CARD = Card(
    name="Transformer-XL",
    paper=paper("dai2019transformer"),
    used_by="Transformer-XL, XLNet, Conformers such as Parakeet",
    make=lambda dim, heads, **options: TransformerXL(dim, heads, **options),
    holds=RELATIVE,
)
