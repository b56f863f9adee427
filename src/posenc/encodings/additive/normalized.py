"""Normalized: add the position divided by the length N of the text.

    PE(p, c) = p / N            divisor="N"      values 0 … (N − 1)/N
    PE(p, c) = p / (N − 1)      divisor="N-1"    values 0 … 1

N is the last position + 1. The code is bounded, but the code of a token changes whenever the text
grows: position 5 of 10 tokens has the same code as position 50 of 100. Each new token would make
cached keys wrong, so a `Cache` is rejected.

Fleetwood 2024, "You could have designed state of the art positional encoding", second step.
"""

from typing import Literal

import torch.nn.functional as F

from posenc.core.encoding import Encoding
from posenc.core.positions import exact
from posenc.core.shapes import Embeddings, Positions
from posenc.encodings.additive.add import TokenRows, add
from posenc.properties import any_length, bounded, order_sensitive, unique_positions
from posenc.properties.card import Card, paper
from posenc.support.arguments import brief, channels

Divisor = Literal["N", "N-1"]


class Normalized(Encoding):
    """Position divided by the length of the text, added to every channel: `Normalized(512)`.

    - `width`: channels of the embeddings
    - `divisor`: "N" divides by the length N; "N-1" divides by N − 1, so that the last token has
      the value 1

    Raises ValueError for another `divisor`.

    >>> import torch
    >>> Normalized(1, "N-1")(torch.zeros(3, 1)).tolist()
    [[0.0], [0.5], [1.0]]
    """

    prepared = TokenRows
    by_length = True

    def __init__(self, width: int, divisor: Divisor = "N"):
        super().__init__()
        if not isinstance(divisor, str) or divisor not in ("N", "N-1"):
            raise ValueError(f"`divisor` must be 'N' or 'N-1', got {brief(divisor)}.")
        self.width = channels(width, "width")
        self.divisor: Divisor = divisor

    def prepare(self, pos: Positions) -> TokenRows:
        pos = exact(pos).double()
        # With the added 0, the maximum of an empty text is defined
        last = F.pad(pos, (0, 1)).amax(-1, keepdim=True)
        # A text of one token would divide 0 by 0
        divisor = last + 1 if self.divisor == "N" else last.clamp_min(1)
        return TokenRows((pos / divisor).float().unsqueeze(-1).expand(*pos.shape, self.width))

    def on_embeddings(self, x: Embeddings, at: TokenRows) -> Embeddings:
        return add(x, at.rows)


CARD = Card(
    name="Normalized",
    paper=paper("fleetwood2024designed"),
    make=lambda dim, heads, **options: Normalized(dim * heads, **options),
    holds=frozenset({unique_positions, bounded, any_length, order_sensitive}),
)
