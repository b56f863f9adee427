"""Sine and cosine at one frequency: add the sine to even channels, and the cosine to odd channels.

    PE(p, 2j) = sin(p θ),  PE(p, 2j+1) = cos(p θ),  j = 0 … d/2 − 1        θ = 1 radian per token

The pair is a point on a circle, so that sin p is no longer ambiguous, and a step of k tokens
rotates it by kθ. But all pairs have the same value, and it nearly repeats after 44 tokens (seven
turns are 43.98 tokens) and after 710 (113 turns are 709.9999). One frequency is not enough.

The step before Vaswani et al. 2017, arXiv:1706.03762, in most introductions.
"""

import torch

from posenc.core.encoding import Encoding
from posenc.core.frequencies import frequencies
from posenc.core.shapes import Embeddings, Positions
from posenc.encodings.additive.add import TokenRows, add
from posenc.encodings.additive.sinusoidal import sines_and_cosines
from posenc.properties import (
    any_length,
    bounded,
    length_independent,
    linear_shift,
    norm_constant,
    order_sensitive,
)
from posenc.properties.card import Card, paper
from posenc.support.arguments import number, paired


class SineCosine(Encoding):
    """Sine and cosine of one frequency, added to embeddings: `SineCosine(512)`.

    - `width`: channels of the embeddings, even
    - `theta`: frequency in radians per token, 1 by default

    Raises ValueError for an odd `width`.

    >>> import torch
    >>> SineCosine(2, theta=0.5)(torch.zeros(2, 2))
    tensor([[0.0000, 1.0000],
            [0.4794, 0.8776]])
    """

    prepared = TokenRows

    def __init__(self, width: int, theta: float = 1.0):
        super().__init__()
        self.width = paired(width, "width")
        self.theta = float(number(theta, "theta"))
        self.freqs = torch.full_like(frequencies(width), self.theta)

    def prepare(self, pos: Positions) -> TokenRows:
        return TokenRows(sines_and_cosines(pos, self.freqs))

    def on_embeddings(self, x: Embeddings, at: TokenRows) -> Embeddings:
        return add(x, at.rows)


CARD = Card(
    name="Sine-cosine",
    paper=paper("vaswani2017attention"),
    make=lambda dim, heads, **options: SineCosine(dim * heads, **options),
    holds=frozenset(
        {bounded, norm_constant, linear_shift, any_length, length_independent, order_sensitive}
    ),
)
