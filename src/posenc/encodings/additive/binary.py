"""Binary: add the position as a binary number, most significant bit first.

    PE(p, c) = ⌊p / 2^(b−1−c)⌋ mod 2,  c = 0 … b − 1        b bits for 2^b positions

With fewer bits than channels, each bit fills d/b neighbouring channels. The code is bounded and
unique, but not smooth: from 7 (0111) to 8 (1000) four bits flip, from 8 to 9 only one. Bit n
toggles every 2^n tokens, which is a square wave; sinusoids are the smooth version of these waves.

Fleetwood 2024, "You could have designed state of the art positional encoding", third step.
"""

import torch

from posenc.compat.tracing import has_values
from posenc.core.encoding import Encoding
from posenc.core.positions import exact, whole
from posenc.core.shapes import Embeddings, Positions
from posenc.encodings.additive.add import TokenRows, add
from posenc.properties import (
    bounded,
    length_independent,
    order_sensitive,
    unique_positions,
)
from posenc.properties.card import Card, paper
from posenc.support.arguments import channels, whole_number


class Binary(Encoding):
    """Bits of the position, added to embeddings: `Binary(512)`, or `Binary(512, bits=8)`.

    - `width`: channels of the embeddings
    - `bits`: bits of a position, a divisor of `width` up to 62; None: the largest divisor up to 32

    Raises ValueError if `bits` does not divide `width`.

    >>> import torch
    >>> Binary(3)(torch.zeros(3, 3)).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """

    prepared = TokenRows

    def __init__(self, width: int, bits: int | None = None):
        super().__init__()
        width = channels(width, "width")
        bits = max(b for b in range(1, 33) if width % b == 0) if bits is None else bits
        if not 1 <= whole_number(bits, "bits") <= 62 or width % bits:
            raise ValueError(f"`bits` must be from 1 to 62 and divide `width`={width}, got {bits}.")
        self.width = width
        self.bits = bits

    def prepare(self, pos: Positions) -> TokenRows:
        """Return the bits of each position as vectors.

        Raises IndexError for positions from 2^bits on, and TypeError for fractions.
        """
        pos = whole(exact(pos), "Binary")
        if pos.numel() and has_values(pos) and not 0 <= pos.min() <= pos.max() < 2**self.bits:
            span = f"{pos.min().item()} … {pos.max().item()}"
            raise IndexError(
                f"`pos` must be from 0 to {2**self.bits - 1:,} for {self.bits} bits, got {span}."
                " Pass smaller positions, or more `bits`."
            )
        worth = 2 ** torch.arange(self.bits - 1, -1, -1, device=pos.device)
        return TokenRows(
            (pos.unsqueeze(-1) // worth % 2).repeat_interleave(self.width // self.bits, -1)
        )

    def on_embeddings(self, x: Embeddings, at: TokenRows) -> Embeddings:
        return add(x, at.rows)


CARD = Card(
    name="Binary",
    paper=paper("fleetwood2024designed"),
    make=lambda dim, heads, **options: Binary(dim * heads, **options),
    holds=frozenset({unique_positions, bounded, length_independent, order_sensitive}),
)
