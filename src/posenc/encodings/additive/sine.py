"""Sine: add the sine of the position to every channel.

    PE(p, c) = sin p

The code is bounded, smooth and defined for every length. But a sine has the same value at several
positions, such as sin 2 = 0.90930 and sin 353 = 0.90931, and sin(p + k) is not a function of sin p
alone: the addition formula needs the cosine too.

The first step towards Vaswani et al. 2017, arXiv:1706.03762, in introductions that derive it.
"""

import torch

from posenc.core.encoding import Encoding
from posenc.core.positions import exact
from posenc.core.shapes import Embeddings, Positions
from posenc.encodings.additive.add import TokenRows, add
from posenc.properties import any_length, bounded, length_independent, order_sensitive
from posenc.properties.card import Card, paper
from posenc.support.arguments import channels


class Sine(Encoding):
    """Sine of the position, added to every channel: `Sine(512)`.

    - `width`: channels of the embeddings

    >>> import torch
    >>> Sine(1)(torch.zeros(3, 1)).flatten()
    tensor([0.0000, 0.8415, 0.9093])
    """

    prepared = TokenRows

    def __init__(self, width: int):
        super().__init__()
        self.width = channels(width, "width")

    def prepare(self, pos: Positions) -> TokenRows:
        sine = torch.sin(exact(pos).double()).float()
        return TokenRows(sine.unsqueeze(-1).expand(*pos.shape, self.width))

    def on_embeddings(self, x: Embeddings, at: TokenRows) -> Embeddings:
        return add(x, at.rows)


CARD = Card(
    name="Sine",
    paper=paper("vaswani2017attention"),
    make=lambda dim, heads, **options: Sine(dim * heads, **options),
    holds=frozenset({bounded, any_length, length_independent, order_sensitive}),
)
