"""Linear sinusoidal: add sines and cosines whose wavelengths grow by equal steps.

    PE(p, 2j−2) = sin(p θⱼ),  PE(p, 2j−1) = cos(p θⱼ)      θⱼ = 1/j radians per token, j = 1 … d/2

With many frequencies positions do not repeat, but the wavelengths 2π, 4π, 6π … πd are close
together at the slow end: of 256 pairs the slowest has a period of 1,608 tokens, and the next one
of 1,602. `Sinusoidal` has wavelengths that grow by equal factors instead. (Texts that print
sin(p/2i) for i = 0 divide by zero; j counts from 1 here.)

The step before Vaswani et al. 2017, arXiv:1706.03762, in introductions that derive it.
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
    unique_positions,
)
from posenc.properties.card import Card, paper
from posenc.support.arguments import paired


class LinearSinusoidal(Encoding):
    """Sines and cosines whose wavelengths grow by equal steps: `LinearSinusoidal(512)`.

    - `width`: channels of the embeddings, even

    Raises ValueError for an odd `width`.

    >>> LinearSinusoidal(8).freqs
    tensor([1.0000, 0.5000, 0.3333, 0.2500], dtype=torch.float64)
    """

    prepared = TokenRows

    def __init__(self, width: int):
        super().__init__()
        self.width = paired(width, "width")
        self.freqs = 1 / torch.ones_like(frequencies(width)).cumsum(0)

    def prepare(self, pos: Positions) -> TokenRows:
        return TokenRows(sines_and_cosines(pos, self.freqs))

    def on_embeddings(self, x: Embeddings, at: TokenRows) -> Embeddings:
        return add(x, at.rows)


CARD = Card(
    name="Linear sinusoidal",
    paper=paper("vaswani2017attention"),
    make=lambda dim, heads, **options: LinearSinusoidal(dim * heads, **options),
    holds=frozenset(
        {unique_positions, bounded, norm_constant, linear_shift}
        | {any_length, length_independent, order_sensitive}
    ),
)
